// mantissa train: checks what can be checked without ranks, starts them, and runs the trainer on each.
#include <charconv>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/job.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "report/event_log.h"
#include "report/listeners.h"
#include "report/metrics_file.h"
#include "report/progress_bar.h"
#include "report/run_folder.h"
#include "train/stop_request.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

struct Arguments {
  std::filesystem::path config;
  int ranks = 0;  // 0: not given
  std::vector<std::string> overrides;
  bool dry_run = false;
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

RunFolder make_run_folder(const Job& job) { return {job.loaded.config.run.dir, job.loaded.config.run.name}; }

// With a launcher it is the launcher that writes why a run failed: it knows even if rank 0 is killed.
class EventLogUnderLauncher final : public EventLog {
 public:
  using EventLog::EventLog;
  void failed(const std::string&, int) override {}
};

void log_failure(const RunFolder& folder, const JobOutcome& outcome) {
  try {
    EventLog(folder.path()).failed(outcome.message, outcome.exit_code);
  } catch (const std::exception& error) {
    log::warning(std::string("the failure could not be written to events.jsonl: ") + error.what());
  }
}

// The listeners of rank 0, and the folder they write to.
class Report {
 public:
  Report(const Job& job, RunFolder folder, std::unique_ptr<EventLog> events) : folder_(std::move(folder)) {
    folder_.write_config(to_toml(job.loaded));
    listeners_.add(std::move(events));
    listeners_.add(std::make_unique<MetricsFile>(folder_.path()));
    listeners_.add(make_progress(job.progress));
  }
  const RunFolder& folder() const { return folder_; }
  EventListener& listener() { return listeners_; }

 private:
  RunFolder folder_;
  Listeners listeners_;
};

// `made`: by the launcher; without one rank 0 makes it.
std::unique_ptr<Report> make_report(const Job& job, const RunFolder* made) {
  if (made) return std::make_unique<Report>(job, *made, std::make_unique<EventLogUnderLauncher>(made->path()));
  RunFolder own = make_run_folder(job);
  auto events = std::make_unique<EventLog>(own.path());
  return std::make_unique<Report>(job, std::move(own), std::move(events));
}

ExitCode train_on(World world, const Job& job, const RunFolder* made, std::unique_ptr<Report>& report) {
  EventListener silent;
  Packet packet;
  packet.fingerprint = job.fingerprint;
  world.impl().exchange.agree_after(
      Operation::start,
      [&] {
        if (world.rank() == 0) report = make_report(job, made);
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
  return exit_code_of(finished);
}

// One rank from its beginning to its end; never throws.
RankOutcome run_rank(const Job& job, const Rendezvous& rendezvous, const RunFolder* made) {
  std::unique_ptr<World> world;
  std::unique_ptr<Report> report;
  const auto fail = [&](RankOutcome outcome) {
    if (world && outcome.origin)
      world->impl().group.report_fault(static_cast<ExitCode>(outcome.exit_code), outcome.message);
    if (world) world->impl().group.abort();
    try {
      if (report) report->listener().failed(outcome.message, outcome.exit_code);
    } catch (const std::exception& error) {
      log::warning(std::string("the failure could not be written to events.jsonl: ") + error.what() +
                   "; make room on the disk of the run folder");
    }
    return outcome;
  };
  try {
    catch_stop_signals(made ? SecondSignal::ignored : SecondSignal::ends);
    const auto timeout =
        std::chrono::milliseconds(static_cast<int64_t>(job.loaded.config.distributed.timeout_s * 1000));
    world = std::make_unique<World>(std::make_shared<World::Impl>(rendezvous, timeout));
    const ExitCode exit_code = train_on(*world, job, made, report);
    return {static_cast<int>(exit_code), true,
            exit_code == ExitCode::done ? "" : "stopped after the step, as asked; nothing was saved"};
  } catch (...) {
    return fail(outcome_of(std::current_exception()));
  }
}

constexpr int kMostRanks = 1024;

int parse_ranks(const std::string& text) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 1 || ranks > kMostRanks) {
    throw CLI::ValidationError("--ranks",
                               "got \"" + text + "\", need a whole number from 1 to " + std::to_string(kMostRanks));
  }
  return ranks;
}

constexpr const char* kExamples =
    "Examples:\n"
    "  mantissa train run.toml --ranks 2\n"
    "  mantissa train run.toml --set optimizer.lr=1e-4 --set run.name=slower\n"
    "  mantissa train run.toml --ranks 4 --dry-run\n"
    "  torchrun --no-python --nproc-per-node 4 mantissa train run.toml\n"
    "\n"
    "The README's \"All keys\" lists what a config may hold; mantissa config show prints what it comes to.";

JobOutcome launch_ranks(const Job& job, int ranks) {
  const RunFolder folder = make_run_folder(job);
  const JobOutcome outcome =
      launch(ranks, [&](const LocalRank& local) { return run_rank(job, rendezvous_of(local), &folder); });
  if (!outcome.in_order) log_failure(folder, outcome);
  return outcome;
}

int train(const Arguments& arguments, const Program& program) {
  outlive_output();
  if (const auto variable = rank_variable(); variable && arguments.ranks > 0) {
    throw UsageError("--ranks was given, but " + *variable +
                     " is set too: this process is a rank already; leave out --ranks, or unset it");
  }
  const std::optional<Rendezvous> environment = rendezvous_from_environment();
  const int ranks = std::max(arguments.ranks, 1);
  const Job job =
      prepare({arguments.config, arguments.overrides, environment ? environment->world_size : ranks}, program);
  if (arguments.dry_run) {
    print_dry_run(job, environment ? environment->world_size : ranks, ranks, program);
    return static_cast<int>(ExitCode::done);
  }
  JobOutcome outcome;
  if (arguments.ranks > 1) {
    warn_about_threads(job.loaded.config, ranks);
    outcome = launch_ranks(job, ranks);
  } else {
    const RankOutcome alone = run_rank(job, environment.value_or(Rendezvous{}), nullptr);
    outcome = {.exit_code = alone.exit_code, .message = alone.message};
  }
  if (!outcome.message.empty()) log::error(outcome.message);
  return outcome.exit_code;
}

}  // namespace

void add_train_command(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("train", "train the model of a config");
  const auto arguments = std::make_shared<Arguments>();
  add_config_argument(*command, arguments->config);
  command
      ->add_option_function<std::string>(
          "--ranks", [arguments](const std::string& text) { arguments->ranks = parse_ranks(text); },
          "start this many ranks on this machine (default: one, or as a launcher's environment says)")
      ->type_name("N");
  add_set_option(*command, arguments->overrides);
  command->add_flag("--dry-run", arguments->dry_run,
                    "check everything, print the plan of units and the memory of a rank; start nothing");
  add_json_option(*command, program)->needs("--dry-run");
  command->footer(kExamples);
  command->callback([arguments, &program] { program.exit_code = train(*arguments, program); });
}

}  // namespace mantissa
