// mantissa train: checks what can be checked without ranks, starts them, and runs the trainer on each.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "config/load.h"
#include "data/text.h"
#include "plugin/find.h"
#include "plugin/vet.h"
#include "report/event_log.h"
#include "report/listeners.h"
#include "report/metrics_file.h"
#include "report/progress.h"
#include "report/run_folder.h"
#include "train/stop_request.h"
#include "train/trainer.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

struct Arguments {
  std::filesystem::path config;
  int ranks = 0;  // 0: not given
  std::vector<std::string> overrides;
};

// What all ranks of a job are given.
struct Job {
  LoadedConfig loaded;
  std::filesystem::path plugin_file;
  uint64_t fingerprint = 0;  ///< of what must be the same on every rank
};

// Paths and the run folder may differ between machines; what is behind the paths may not.
uint64_t fingerprint_of(const LoadedConfig& loaded, const std::string& plugin_sha256, size_t text_size) {
  std::string text = plugin_sha256 + " " + std::to_string(text_size);
  for (const Setting& setting : loaded.settings) {
    const bool local = setting.key == "run.dir" || setting.key == "run.name" || setting.key == "data.path" ||
                       setting.key == "model.init" || setting.key == "precision.plugin";
    if (!local) text += "\n" + setting.key + " = " + setting.value;
  }
  return std::hash<std::string>()(text);
}

// Everything that can be wrong without ranks, before any is started.
Job prepare(const Arguments& arguments, const Program& program, int world_size) {
  Job job{load_config(arguments.config, arguments.overrides), {}, 0};
  const Config& config = job.loaded.config;
  if (config.train.batch < world_size) {
    throw ConfigError({arguments.config.string() + ": train.batch: got " + std::to_string(config.train.batch) +
                       ", need at least the number of ranks, " + std::to_string(world_size) +
                       "; every rank must have a row"});
  }
  const TextData data(config.data.path, config.data.heldout, config.model.context);
  if (config.model.init) const SafetensorsFile init(*config.model.init);
  job.plugin_file = find_plugin(config.precision.plugin, from_environment(program.executable));
  const VettedPlugin plugin = vet_plugin(job.plugin_file, {config.precision.sha256, config.plugins.require_pin});
  job.fingerprint = fingerprint_of(job.loaded, plugin.sha256, data.all().size());
  return job;
}

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
  packet.call_hash = job.fingerprint;
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
  } catch (const Error& error) {
    return fail(error.exit_code(), true, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::failed, true, "out of memory; use a smaller model or batch, or more ranks");
  } catch (const std::exception& error) {
    return fail(ExitCode::failed, true, error.what());
  }
}

int train(const Arguments& arguments, const Program& program) {
  if (arguments.ranks > 0 && std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr) {
    throw UsageError(
        "--ranks was given, but RANK and WORLD_SIZE are set too: this process is a rank already; leave out --ranks, or "
        "unset them");
  }
  const std::optional<Rendezvous> environment = rendezvous_from_environment();
  const int ranks = std::max(arguments.ranks, 1);
  const Job job = prepare(arguments, program, environment ? environment->world_size : ranks);
  int exit_code = 0;
  std::string message;
  if (arguments.ranks > 1) {
    warn_about_threads(job.loaded.config, ranks);
    const JobOutcome outcome = launch(ranks, [&](const LocalRank& local) {
      Rendezvous rendezvous;
      rendezvous.rank = local.rank;
      rendezvous.world_size = local.world_size;
      rendezvous.port = local.port;
      rendezvous.listen_fd = local.listen_fd;
      return run_rank(job, rendezvous);
    });
    exit_code = outcome.exit_code;
    message = outcome.message;
  } else {
    const RankOutcome outcome = run_rank(job, environment.value_or(Rendezvous{}));
    exit_code = outcome.exit_code;
    message = outcome.message;
  }
  if (!message.empty()) std::fprintf(stderr, "mantissa: error: %s\n", message.c_str());
  return exit_code;
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
