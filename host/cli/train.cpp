// mantissa train: checks what can be checked without ranks, starts them, and runs the trainer on each.
#include <cstdio>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "report/event_log.h"
#include "report/listeners.h"
#include "report/metrics_file.h"
#include "report/progress.h"
#include "report/run_folder.h"
#include "train/stop_request.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

struct Arguments {
  std::filesystem::path config;
  int ranks = 0;  // 0: not given
  std::vector<std::string> overrides;
};

void warn_about_threads(const Config& config, int local_ranks) {
  const unsigned cores = std::thread::hardware_concurrency();
  const int64_t threads = config.distributed.threads;
  if (cores == 0 || threads * local_ranks <= cores) return;
  log::warning(std::to_string(local_ranks) + " ranks with " + std::to_string(threads) +
               (threads == 1 ? " thread" : " threads") + " each share " + std::to_string(cores) +
               " cores: steps will be slow; use fewer ranks" +
               (threads > 1 ? ", or a smaller distributed.threads" : ""));
}

// The listeners of rank 0, and the folder they write to.
class Report {
 public:
  explicit Report(const Job& job) : folder_(job.loaded.config.run.dir, job.loaded.config.run.name) {
    folder_.write_config(to_toml(job.loaded));
    listeners_.add(std::make_unique<EventLog>(folder_.path()));
    listeners_.add(std::make_unique<MetricsFile>(folder_.path()));
    listeners_.add(std::make_unique<ProgressLines>(std::cout));
  }
  const RunFolder& folder() const { return folder_; }
  EventListener& listener() { return listeners_; }

 private:
  RunFolder folder_;
  Listeners listeners_;
};

ExitCode code_of(const RunFinished& finished) {
  if (finished.stopped_by.empty()) return ExitCode::done;
  return finished.stopped_by == "SIGINT" ? ExitCode::interrupted : ExitCode::terminated;
}

ExitCode train_on(World world, const Job& job, std::unique_ptr<Report>& report) {
  EventListener silent;
  Packet packet;
  packet.fingerprint = job.fingerprint;
  world.impl().exchange.agree_after(
      Operation::start,
      [&] {
        if (world.rank() == 0) report = std::make_unique<Report>(job);
      },
      packet);
  EventListener& listener = report ? report->listener() : silent;
  const std::filesystem::path folder = report ? report->folder().path() : std::filesystem::path();
  Trainer trainer(job.loaded.config, job.plugin_file, world);
  const RunStarted started = trainer.describe(folder);
  if (report) report->folder().write_plugins({{started.plugin, 0}});
  listener.started(started);
  const RunFinished finished = trainer.run(listener, folder);
  listener.finished(finished);
  return code_of(finished);
}

// One rank from its beginning to its end; never throws.
RankOutcome run_rank(const Job& job, const Rendezvous& rendezvous) {
  std::unique_ptr<World> world;
  std::unique_ptr<Report> report;
  const auto fail = [&](ExitCode exit_code, bool origin, const std::string& cause) -> RankOutcome {
    if (world) {
      world->impl().group.report_fault(exit_code, cause);
      world->impl().group.abort();
    }
    try {
      if (report) report->listener().failed(cause, static_cast<int>(exit_code));
    } catch (const std::exception& error) {
      log::warning(std::string("the failure could not be written to events.jsonl: ") + error.what());
    }
    return {static_cast<int>(exit_code), origin, cause};
  };
  try {
    catch_stop_signals();
    const auto timeout =
        std::chrono::milliseconds(static_cast<int64_t>(job.loaded.config.distributed.timeout_s * 1000));
    world = std::make_unique<World>(std::make_shared<World::Impl>(rendezvous, timeout));
    const ExitCode exit_code = train_on(*world, job, report);
    return {static_cast<int>(exit_code), true,
            exit_code == ExitCode::done ? "" : "stopped after the step, as asked; nothing was saved"};
  } catch (const PeerFailed& error) {
    return fail(error.exit_code(), false, error.what());
  } catch (const CommError& error) {
    return fail(error.exit_code(), false, error.what());
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    return fail(failure.exit_code, true, failure.text);
  }
}

int train(const Arguments& arguments, const Program& program) {
  if (arguments.ranks > 0 && is_rank_by_environment()) {
    throw UsageError(
        "--ranks was given, but RANK or WORLD_SIZE is set too: this process is a rank already; leave out --ranks, or "
        "unset them");
  }
  const std::optional<Rendezvous> environment = rendezvous_from_environment();
  const int ranks = std::max(arguments.ranks, 1);
  const Job job =
      prepare({arguments.config, arguments.overrides, environment ? environment->world_size : ranks}, program);
  JobOutcome outcome;
  if (arguments.ranks > 1) {
    warn_about_threads(job.loaded.config, ranks);
    outcome = launch(ranks, [&](const LocalRank& local) { return run_rank(job, rendezvous_of(local)); });
  } else {
    const RankOutcome alone = run_rank(job, environment.value_or(Rendezvous{}));
    outcome = {alone.exit_code, alone.message};
  }
  if (!outcome.message.empty()) std::fprintf(stderr, "mantissa: error: %s\n", outcome.message.c_str());
  return outcome.exit_code;
}

}  // namespace

void add_train_command(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("train", "train the model of a config");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "the TOML file")->required();
  command
      ->add_option("--ranks", arguments->ranks,
                   "start this many local processes (default: one, or as RANK and WORLD_SIZE say)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--set", arguments->overrides,
                   "override a key: dotted.key=value, value in TOML syntax; may be repeated")
      ->allow_extra_args(false);
  command->callback([arguments, &program] { program.exit_code = train(*arguments, program); });
}

}  // namespace mantissa
