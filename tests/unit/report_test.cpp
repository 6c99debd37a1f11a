// What a run leaves for programs (metrics.jsonl, events.jsonl, plugins.json) and shows to people, letter by letter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/number_text.h"
#include "report/event_log.h"
#include "report/listeners.h"
#include "report/metrics_file.h"
#include "report/progress.h"
#include "report/run_folder.h"

namespace mantissa {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::chrono::system_clock::time_point noon() {  // of 30 November 2026, 22:56:00 UTC
  return std::chrono::sys_days(std::chrono::year(2026) / 11 / 30) + std::chrono::hours(22) + std::chrono::minutes(56);
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Report : public testing::Test {
 protected:
  Report() {
    std::string name = (std::filesystem::temp_directory_path() / "mantissa-report-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Report() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

RunStarted demo_run() {
  RunStarted run;
  run.name = "demo";
  run.folder = "runs/demo/20261130T225600Z";
  run.steps = 400;
  run.world_size = 2;
  run.model = "gpt, 4 layers, width 256";
  run.num_parameters = 3322880;
  run.sharding = "full";
  run.data = "kjv.txt, 4,137,850 bytes, the last 206,893 held out";
  run.plugin.id = "fsdp_norm";
  run.plugin_name = "fsdp_norm";
  run.plugin.version = "1.0.0";
  run.plugin.sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  run.plugin.file = "/opt/plugins/fsdp_norm.so";
  run.plugin.abi_major = 1;
  run.plugin.abi_minor = 0;
  run.clip = "max_norm = 1 (p = 2)";
  return run;
}

StepMetrics demo_row() {
  StepMetrics metrics;
  metrics.step = 9;
  metrics.loss = 3.25;
  metrics.grad_norm = 1.5;
  metrics.grad_norm_clipped = 1;
  metrics.clip_coef = 0.6666662222225185;
  metrics.lr = 0.003;
  metrics.tokens_per_s = 12345.6;
  metrics.step_ms = 400;
  metrics.forward_ms = 100.5;
  metrics.backward_ms = 250;
  metrics.comm_ms = 40;
  metrics.optimizer_ms = 9.5;
  metrics.memory_mb = 512.25;
  return metrics;
}

TEST(JsonNumber, AnyDouble_IsShortestAndReadsBack) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(1), "1.0");
  EXPECT_EQ(json_number(-0.0), "-0.0");
  EXPECT_EQ(json_number(1e-300), "1e-300");
  EXPECT_EQ(json_number(5e-324), "5e-324");
  EXPECT_EQ(json_number(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(json_number(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(json_number(9007199254740993), "9007199254740992.0");
}

TEST(JsonNumber, NonFinite_IsAString) {
  EXPECT_EQ(json_number(kNan), "\"nan\"");
  EXPECT_EQ(json_number(-kNan), "\"nan\"");
  EXPECT_EQ(json_number(kInf), "\"inf\"");
  EXPECT_EQ(json_number(-kInf), "\"-inf\"");
}

TEST(NumberText, ForPeople_IsGroupedAndRounded) {
  EXPECT_EQ(grouped(int64_t{0}), "0");
  EXPECT_EQ(grouped(int64_t{999}), "999");
  EXPECT_EQ(grouped(int64_t{-1000}), "-1,000");
  EXPECT_EQ(grouped(int64_t{1234567}), "1,234,567");
  EXPECT_EQ(grouped(12345.6), "12,346");
  EXPECT_EQ(grouped(kNan), "nan");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(125), "2 min 05 s");
  EXPECT_EQ(duration_text(3725), "1 h 02 min");
  EXPECT_EQ(duration_text(kNan), "?");
}

TEST_F(Report, MetricsRow_HasItsKeysInOrder) {
  MetricsFile file(folder_);
  file.stepped(demo_row());
  const std::string row =
      R"({"step": 9, "loss": 3.25, "grad_norm": 1.5, "grad_norm_clipped": 1.0, "clip_coef": 0.6666662222225185, )"
      R"("loss_scale": 1.0, "skipped_total": 0, "lr": 0.003, "tokens_per_s": 12345.6, "step_ms": 400.0, )"
      R"("forward_ms": 100.5, "backward_ms": 250.0, "comm_ms": 40.0, "optimizer_ms": 9.5, "memory_mb": 512.25)";
  EXPECT_EQ(content(folder_ / "metrics.jsonl"), row + "}\n");  // while the file is still open: flushed
  StepMetrics evaluated = demo_row();
  evaluated.val_loss = 1.75;
  evaluated.val_bits_per_byte = kInf;
  file.stepped(evaluated);
  EXPECT_EQ(content(folder_ / "metrics.jsonl"),
            row + "}\n" + row + R"(, "val_loss": 1.75, "val_bits_per_byte": "inf"})" + "\n");
}

TEST_F(Report, MetricsOnAFullDisk_EndTheRunWithTheFilesName) {
  MetricsFile file(folder_);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto previous = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    file.stepped(demo_row());
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, previous);
  EXPECT_THAT(message, AllOf(HasSubstr("metrics.jsonl"), HasSubstr("File too large")));
}

TEST_F(Report, EventLog_TellsStartSkipAndStop) {
  EventLog log(folder_, noon);
  log.started(demo_run());
  log.skipped({.step = 3, .reason = "found_inf", .grad_norm = kNan, .loss_scale = 65536});
  RunFinished result;
  result.steps = 400;
  result.skipped = 1;
  result.seconds = 161.5;
  result.train_loss = 1.5;
  result.val_loss = 1.25;
  result.val_bits_per_byte = 1.75;
  log.finished(result);
  EXPECT_EQ(
      content(folder_ / "events.jsonl"),
      R"({"time":"2026-11-30T22:56:00Z","event":"start","name":"demo","steps":400,"world_size":2,)"
      R"("model":"gpt, 4 layers, width 256","num_parameters":3322880,"sharding":"full",)"
      R"("data":"kjv.txt, 4,137,850 bytes, the last 206,893 held out","plugin":{"id":"fsdp_norm","version":"1.0.0",)"
      R"x("sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},"clip":"max_norm = 1 (p = 2)"})x"
      "\n"
      R"({"time":"2026-11-30T22:56:00Z","event":"skip","step":3,"reason":"found_inf","grad_norm":"nan","loss_scale":65536.0})"
      "\n"
      R"({"time":"2026-11-30T22:56:00Z","event":"stop","exit_code":0,"steps":400,"skipped":1,"seconds":161.5,)"
      R"("train_loss":1.5,"val_loss":1.25,"val_bits_per_byte":1.75})"
      "\n");
}

TEST_F(Report, EventLog_StoppedBySignal_GivesItsExitCode) {
  EventLog log(folder_, noon);
  RunFinished result;
  result.steps = 12;
  result.stopped_by = "SIGINT";
  log.finished(result);
  result.stopped_by = "SIGTERM";
  log.finished(result);
  result.stopped_by = "SIGHUP";
  log.finished(result);
  EXPECT_THAT(content(folder_ / "events.jsonl"), AllOf(HasSubstr(R"("exit_code":130,"stopped_by":"SIGINT","steps":12)"),
                                                       HasSubstr(R"("exit_code":143,"stopped_by":"SIGTERM")"),
                                                       HasSubstr(R"("exit_code":129,"stopped_by":"SIGHUP")")));
}

TEST_F(Report, LineFile_FolderDeletedOrReplaced_IsNoticedAtTheNextLine) {
  EventLog log(folder_, noon);
  std::filesystem::rename(folder_ / "events.jsonl", folder_ / "moved.jsonl");
  const auto error = [&] {
    try {
      log.failed("x", 1);
    } catch (const Error& thrown) {
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("events.jsonl"), HasSubstr("No such file")));
  EventLog other(folder_, noon);
  EXPECT_THAT(error(), HasSubstr("another file has taken its place"));
}

TEST_F(Report, EventLog_FailureWithAnyBytes_StaysJson) {
  EventLog log(folder_, noon);
  log.failed("rank 1 said \"\xff\"\nand died", 1);
  EXPECT_EQ(content(folder_ / "events.jsonl"),
            "{\"time\":\"2026-11-30T22:56:00Z\",\"event\":\"stop\",\"exit_code\":1,"
            "\"cause\":\"rank 1 said \\\"\xef\xbf\xbd\\\"\\nand died\"}\n");
}

TEST_F(Report, RunFolder_TwoRunsInOneSecond_GetTwoFolders) {
  const RunFolder first(folder_ / "runs", "demo", noon), second(folder_ / "runs", "demo", noon),
      third(folder_ / "runs", "demo", noon);
  EXPECT_EQ(first.path(), folder_ / "runs" / "demo" / "20261130T225600Z");
  EXPECT_EQ(second.path(), folder_ / "runs" / "demo" / "20261130T225600Z-2");
  EXPECT_EQ(third.path(), folder_ / "runs" / "demo" / "20261130T225600Z-3");
  EXPECT_TRUE(std::filesystem::is_directory(third.path()));
}

TEST_F(Report, RunFolder_FilesOfTheRun_AreWrittenWhole) {
  const RunFolder run(folder_, "demo", noon);
  run.write_config("[run]\nname = \"demo\"\n");
  run.write_plugins({{demo_run().plugin, 0}});
  EXPECT_EQ(content(run.path() / "config.toml"), "[run]\nname = \"demo\"\n");
  EXPECT_EQ(content(run.path() / "plugins.json"), R"([
  {
    "id": "fsdp_norm",
    "version": "1.0.0",
    "abi": "1.0",
    "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "file": "/opt/plugins/fsdp_norm.so",
    "from_step": 0
  }
]
)");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run.path()), {}), 2);
}

TEST_F(Report, RunFolder_NotWritable_IsAUsageErrorThatSaysWhere) {
  std::ofstream(folder_ / "file") << "in the way";
  try {
    RunFolder(folder_ / "file", "demo", noon);
    FAIL() << "created";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("run.dir: cannot create"), HasSubstr("Not a directory"), HasSubstr("set run.dir")));
  }
}

TEST(ProgressLines, WholeRun_ReadsLikeThis) {
  std::ostringstream out;
  ProgressLines progress(out);
  progress.started(demo_run());
  progress.stepped(demo_row());
  progress.skipped({.step = 19, .reason = "found_inf", .grad_norm = kInf, .loss_scale = 65536});
  StepMetrics last = demo_row();
  last.step = 399;
  last.loss = 1.90123;
  last.grad_norm = 0.012345;
  last.grad_norm_clipped = 0.012345;
  last.lr = 1.5e-7;
  last.val_loss = 1.9;
  last.val_bits_per_byte = 2.74112;
  progress.stepped(last);
  RunFinished result;
  result.steps = 400;
  result.skipped = 1;
  result.seconds = 161;
  result.tokens_per_s = 12001;
  result.train_loss = 1.90123;
  result.val_loss = 1.9;
  result.val_bits_per_byte = 2.74112;
  result.memory_mb = 612.4;
  result.weights = "runs/demo/20261130T225600Z/weights.safetensors";
  result.sample = "In the beginning God\ncreated \x1b[31m the \xff heaven";
  progress.finished(result);
  EXPECT_EQ(out.str(), R"(training demo for 400 steps
  model       gpt, 4 layers, width 256, 3,322,880 parameters
  data        kjv.txt, 4,137,850 bytes, the last 206,893 held out
  ranks       2 ranks, sharded
  plugin      fsdp_norm 1.0.0 (sha256 0123456789ab)
  clip        max_norm = 1 (p = 2)
  run folder  runs/demo/20261130T225600Z

step  10/400  loss  3.2500  grad_norm       1.5 ->         1  lr    0.003     12,346 tokens/s   2 min 36 s left
step  20/400  skipped: found_inf (grad_norm inf, loss_scale 65,536)
step 400/400  loss  1.9012  grad_norm   0.01235 ->   0.01235  lr  1.5e-07     12,346 tokens/s          0 s left  held-out 2.7411 bits/byte

done: demo, 400 steps in 2 min 41 s, 1 of them skipped
  model       gpt, 4 layers, width 256, 3,322,880 parameters
  ranks       2 ranks, sharded
  plugin      fsdp_norm 1.0.0
              sha256 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  train loss  1.9012 nats, last step
  held-out    2.7411 bits per byte (1.9000 nats)
  speed       12,001 tokens/s
  memory      612 MB at most in a rank
  run folder  runs/demo/20261130T225600Z
  weights     runs/demo/20261130T225600Z/weights.safetensors
  text        In the beginning God
              created ?[31m the ? heaven
next
  settings    mantissa config show runs/demo/20261130T225600Z/config.toml
  plugin      mantissa plugin info fsdp_norm
  run again   mantissa train runs/demo/20261130T225600Z/config.toml --ranks 2 --set run.seed=1
)");
}

TEST(ProgressLines, OneRankNothingHeldOut_LeavesOutWhatIsNotThere) {
  std::ostringstream out;
  ProgressLines progress(out);
  RunStarted run = demo_run();
  run.world_size = 1;
  run.sharding = "none";
  progress.started(run);
  progress.finished({});
  EXPECT_THAT(out.str(), AllOf(HasSubstr("1 rank, not sharded\n"), testing::Not(HasSubstr("held-out ")),
                               testing::Not(HasSubstr("--ranks")), testing::Not(HasSubstr("text ")),
                               testing::Not(HasSubstr("skipped"))));
}

TEST(ProgressLines, StoppedRun_SaysAfterHowManySteps) {
  std::ostringstream out;
  ProgressLines progress(out);
  progress.started(demo_run());
  RunFinished result;
  result.steps = 120;
  result.seconds = 48;
  result.stopped_by = "SIGTERM";
  progress.finished(result);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("\nstopped by SIGTERM: demo, after 120 of 400 steps in 48 s\n"),
                               testing::Not(HasSubstr("done:")), testing::Not(HasSubstr("weights"))));
}

TEST(ProgressLines, DivergedRow_ShowsWords) {
  std::ostringstream out;
  ProgressLines progress(out);
  progress.started(demo_run());
  out.str("");
  StepMetrics row = demo_row();
  row.loss = kNan;
  row.grad_norm = row.grad_norm_clipped = kInf;
  progress.stepped(row);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("loss     nan"), HasSubstr("inf ->       inf")));
}

TEST(Printable, AnyBytes_AreSafeOnATerminal) {
  EXPECT_EQ(printable("a\nb\tc\r\x7f"), "a\nb?c??");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "?31m");                                           // the C1 form of ESC [
  EXPECT_EQ(printable("\xe2\x82"), "??");                      // cut short
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xf5"), "??????");  // overlong, surrogate, beyond Unicode
}

class Recorder : public EventListener {
 public:
  Recorder(std::string name, std::string& heard) : name_(std::move(name)), heard_(heard) {}
  void started(const RunStarted&) override { heard_ += name_ + "started "; }
  void stepped(const StepMetrics&) override { heard_ += name_ + "stepped "; }
  void skipped(const StepSkipped&) override { heard_ += name_ + "skipped "; }
  void finished(const RunFinished&) override { heard_ += name_ + "finished "; }
  void failed(const std::string& cause, int code) override { heard_ += name_ + cause + std::to_string(code) + " "; }

 private:
  std::string name_;
  std::string& heard_;
};

TEST(Listeners, EveryEvent_ReachesAllInOrder) {
  std::string heard;
  Listeners listeners;
  listeners.add(std::make_unique<Recorder>("a:", heard));
  listeners.add(std::make_unique<Recorder>("b:", heard));
  listeners.started({});
  listeners.stepped({});
  listeners.skipped({});
  listeners.finished({});
  listeners.failed("lost", 1);
  EXPECT_EQ(heard,
            "a:started b:started a:stepped b:stepped a:skipped b:skipped a:finished b:finished a:lost1 b:lost1 ");
}

}  // namespace
}  // namespace mantissa
