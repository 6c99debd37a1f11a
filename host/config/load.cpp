#include "config/load.h"

#include <algorithm>
#include <cmath>

#include "config/document.h"
#include "config/reader.h"

namespace mantissa {
namespace {

// Limits that keep products of sizes far from the ends of int64; no run comes near them.
constexpr WholeRange kSteps{1, 1'000'000'000'000};
constexpr WholeRange kInterval{0, 1'000'000'000'000};
constexpr WholeRange kRows{1, 1'000'000};
constexpr WholeRange kLayers{1, 10'000};
constexpr WholeRange kWidth{1, 1'000'000};
constexpr WholeRange kLength{1, 1'000'000};
constexpr WholeRange kThreads{1, 1024};
constexpr WholeRange kInputs{1, 10'000};
constexpr WholeRange kClasses{2, 1000};
constexpr WholeRange kHeldoutRows{0, 1'000'000'000};

constexpr NumberRule kAboveZero{[](double x) { return x > 0 && std::isfinite(x); }, "a finite number > 0"};
constexpr NumberRule kNotNegative{[](double x) { return x >= 0 && std::isfinite(x); }, "a finite number >= 0"};
constexpr NumberRule kPart{[](double x) { return x >= 0 && x < 1; }, "a number in [0, 1)"};
constexpr NumberRule kTwoParts{kPart.holds, "two numbers in [0, 1), such as [0.9, 0.999]"};
constexpr NumberRule kRatio{[](double x) { return x >= 0 && x <= 1; }, "a number in [0, 1]"};
constexpr NumberRule kLimit{[](double x) { return x >= 0; }, "a number >= 0 (inf clips nothing)"};
constexpr NumberRule kNormType{[](double x) { return x > 0; }, "a number in (0, inf]"};
constexpr NumberRule kTimeout{[](double x) { return x > 0 && x <= 1e7; }, "seconds in (0, 1e7]"};

bool is_folder_name(std::string_view name) {
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '/' || byte < 0x20 || byte == 0x7F;
  });
  return plain && !name.empty() && name.size() <= 255 && name != "." && name != "..";
}

bool is_sha256(std::string_view digits) {
  return digits.size() == 64 && digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool is_plugin(std::string_view plugin) { return !plugin.empty() && plugin.find('\0') == std::string_view::npos; }

constexpr TextRule kFolderName{is_folder_name, "a plain folder name in quotes, without /"};
constexpr TextRule kPlugin{is_plugin, "the name of a plugin, or a path with a /, in quotes"};
constexpr TextRule kSha256{is_sha256, "64 hex digits in quotes"};
constexpr TextRule kPrompt{[](std::string_view prompt) { return !prompt.empty(); },
                           "a text in quotes, at least one character"};
constexpr TextRule kModelKind{[](std::string_view kind) { return kind == "gpt" || kind == "mlp"; },
                              "\"gpt\" or \"mlp\""};
constexpr TextRule kDataKind{[](std::string_view kind) { return kind == "text" || kind == "generated"; },
                             "\"text\" or \"generated\""};
constexpr TextRule kBackend{[](std::string_view backend) { return backend == "auto" || backend == "gloo"; },
                            "\"auto\" or \"gloo\" (NCCL is not in this build)"};

/// Whether steps can be relied on by later checks.
bool read_run(Reader& reader, RunConfig& run) {
  Section in(reader, "run");
  if (in.required("name", kFolderName.need)) in.text("name", run.name, kFolderName);
  in.whole("seed", run.seed);
  const bool has_steps = in.required("steps", "a whole number >= 1") && in.whole("steps", run.steps, kSteps);
  in.path_as_is("dir", run.dir);
  in.close();
  return has_steps;
}

void read_heads(Section& in, ModelConfig& model, bool has_width) {
  if (!in.whole("heads", model.heads, kWidth) || !has_width || model.width % model.heads == 0) return;
  const std::string width = std::to_string(model.width), heads = std::to_string(model.heads);
  if (in.has("heads")) {
    in.problem("heads", "got " + heads + ", need a divisor of model.width = " + width);
  } else {
    in.problem("width", "got " + width + ", need a multiple of model.heads = " + heads);
  }
}

// model.kind stays empty where it is missing or wrong.
void read_model(Reader& reader, ModelConfig& model) {
  Section in(reader, "model");
  if (in.required("kind", kModelKind.need)) in.text("kind", model.kind, kModelKind);
  in.whole("layers", model.layers, kLayers);
  const bool has_width = in.whole("width", model.width, kWidth);
  if (model.kind != "mlp") {
    read_heads(in, model, has_width);
    in.whole("context", model.context, kLength);
  } else {
    in.idle("heads", "model.kind = \"mlp\"");
    in.idle("context", "model.kind = \"mlp\"");
  }
  if (in.has("init")) in.path("init", model.init.emplace());
  in.close();
}

void read_text(Section& in, DataConfig& data) {
  in.path("path", data.path);
  in.number("heldout", data.heldout, kPart);
}

void read_generated(Section& in, DataConfig& data) {
  in.whole("seed", data.seed);
  in.whole("inputs", data.inputs, kInputs);
  in.whole("classes", data.classes, kClasses);
  in.whole("heldout_rows", data.heldout_rows, kHeldoutRows);
}

void read_data(Reader& reader, DataConfig& data, const std::string& model_kind) {
  Section in(reader, "data");
  const bool has_kind = in.text("kind", data.kind, kDataKind);
  const std::string needed = model_kind == "mlp" ? "generated" : "text";
  const bool fits = has_kind && (model_kind.empty() || data.kind == needed);
  if (has_kind && !fits) {
    in.problem("kind", "got \"" + data.kind + "\", need \"" + needed + "\" with model.kind = \"" + model_kind + "\"");
  }
  if (!fits) {  // the keys of both kinds may be meant
    read_text(in, data);
    read_generated(in, data);
  } else if (data.kind == "text") {
    in.required("path", "the path of a text file in quotes");
    read_text(in, data);
    for (const char* key : {"seed", "inputs", "classes", "heldout_rows"}) in.idle(key, "data.kind = \"text\"");
  } else {
    read_generated(in, data);
    for (const char* key : {"path", "heldout"}) in.idle(key, "data.kind = \"generated\"");
  }
  in.close();
}

void read_train(Reader& reader, TrainConfig& train) {
  Section in(reader, "train");
  in.whole("batch", train.batch, kRows);
  in.whole("microbatches", train.microbatches, kRows);
  in.whole("eval_every", train.eval_every, kInterval);
  in.whole("max_consecutive_skips", train.max_consecutive_skips, kSteps);
  in.close();
}

void read_optimizer(Reader& reader, OptimizerConfig& optimizer) {
  Section in(reader, "optimizer");
  // with a kind that is wrong, the keys of both may be meant
  const bool has_kind =
      in.choice("kind", optimizer.kind, {{"adamw", OptimizerKind::adamw}, {"sgd", OptimizerKind::sgd}});
  const bool adamw = optimizer.kind == OptimizerKind::adamw;
  in.number("lr", optimizer.lr, kAboveZero);
  if (adamw || !has_kind) {
    in.pair("betas", {optimizer.beta1, optimizer.beta2}, kTwoParts);
    in.number("eps", optimizer.eps, kAboveZero);
  } else {
    in.idle("betas", "optimizer.kind = \"sgd\"");
    in.idle("eps", "optimizer.kind = \"sgd\"");
  }
  in.number("weight_decay", optimizer.weight_decay, kNotNegative);
  in.choice("decay", optimizer.decay, {{"all", Decay::all}, {"matrices", Decay::matrices}});
  if (!adamw || !has_kind) {
    in.number("momentum", optimizer.momentum, kPart);
  } else {
    in.idle("momentum", "optimizer.kind = \"adamw\"");
  }
  in.close();
}

void read_schedule(Reader& reader, ScheduleConfig& schedule, const int64_t* steps) {
  Section in(reader, "schedule");
  const bool has_kind = in.choice(
      "kind", schedule.kind,
      {{"constant", ScheduleKind::constant}, {"linear", ScheduleKind::linear}, {"cosine", ScheduleKind::cosine}});
  const bool has_warmup = in.whole("warmup", schedule.warmup, kInterval);
  if (has_warmup && steps != nullptr && schedule.warmup > *steps) {
    in.problem("warmup",
               "got " + std::to_string(schedule.warmup) + ", need at most run.steps = " + std::to_string(*steps));
  }
  if (schedule.kind != ScheduleKind::constant || !has_kind) {
    in.number("floor", schedule.floor, kRatio);
  } else {
    in.idle("floor", "schedule.kind = \"constant\"");
  }
  in.close();
}

void read_precision(Reader& reader, PrecisionConfig& precision) {
  Section in(reader, "precision");
  if (in.required("plugin", kPlugin.need)) in.name_or_path("plugin", precision.plugin, kPlugin);
  precision.where = in.where("plugin");
  if (in.has("sha256")) in.text("sha256", precision.sha256.emplace(), kSha256);
  in.options("options", precision.options);
  in.close();
}

void read_clip(Reader& reader, ClipConfig& clip) {
  Section in(reader, "clip", Absent::off);
  const bool by_norm = in.has("max_norm"), by_value = in.has("value"), by_any = by_norm || by_value;
  if (in.present() && !by_any) in.problem("", "got neither max_norm nor value, need one of them");
  if (by_norm && by_value) in.problem("value", "got both max_norm and value, need one of them");
  if (by_norm) in.number("max_norm", clip.limit, kLimit);
  if (by_value) in.number("value", clip.limit, kLimit);
  if (by_norm || !by_any) {
    in.number("norm_type", clip.norm_type, kNormType);
  } else {
    in.idle("norm_type", "clip.value");
  }
  in.boolean("error_if_nonfinite", clip.error_if_nonfinite);
  if (by_any) clip.where = in.where(by_value ? "value" : "max_norm");
  clip.kind = by_norm ? ClipKind::norm : by_value ? ClipKind::value : ClipKind::none;
  in.close();
}

void read_fsdp(Reader& reader, FsdpConfig& fsdp) {
  Section in(reader, "fsdp");
  const bool has_sharding = in.choice("sharding", fsdp.full, {{"full", true}, {"none", false}});
  if (fsdp.full || !has_sharding) {
    in.boolean("reshard_after_forward", fsdp.reshard_after_forward);
  } else {
    in.idle("reshard_after_forward", "fsdp.sharding = \"none\"");
  }
  in.boolean("reduce_every_microbatch", fsdp.reduce_every_microbatch);
  in.close();
}

void read_distributed(Reader& reader, DistributedConfig& distributed) {
  Section in(reader, "distributed");
  in.text("backend", distributed.backend, kBackend);
  in.number("timeout_s", distributed.timeout_s, kTimeout);
  in.whole("threads", distributed.threads, kThreads);
  in.close();
}

void read_log(Reader& reader, LogConfig& log) {
  Section in(reader, "log");
  in.whole("every", log.every, kSteps);
  in.boolean("unit_norms", log.unit_norms);
  in.close();
}

void read_sample(Reader& reader, std::optional<SampleConfig>& out, const std::string& model_kind) {
  Section in(reader, "sample", Absent::off);
  if (in.present() && model_kind == "mlp") {
    in.problem("", "got a section, need it left out: a model of kind \"mlp\" writes no text");
  }
  SampleConfig sample;
  in.whole("length", sample.length, kLength);
  in.text("prompt", sample.prompt, kPrompt);
  in.number("temperature", sample.temperature, kAboveZero);
  in.whole("seed", sample.seed);
  if (in.present()) out = sample;
  in.close();
}

void read_plugins(Reader& reader, PluginsConfig& plugins) {
  Section in(reader, "plugins");
  in.boolean("require_pin", plugins.require_pin);
  in.number("slow_ms", plugins.slow_ms, kNotNegative);
  in.close();
}

}  // namespace

LoadedConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Document document(file);
  Problems problems;
  for (const std::string& assignment : overrides) document.set(assignment, problems);

  LoadedConfig loaded;
  Config& config = loaded.config;
  Reader reader(document, problems, loaded.settings);
  const bool has_steps = read_run(reader, config.run);
  read_model(reader, config.model);
  read_data(reader, config.data, config.model.kind);
  read_train(reader, config.train);
  read_optimizer(reader, config.optimizer);
  read_schedule(reader, config.schedule, has_steps ? &config.run.steps : nullptr);
  read_precision(reader, config.precision);
  read_clip(reader, config.clip);
  read_fsdp(reader, config.fsdp);
  read_distributed(reader, config.distributed);
  read_log(reader, config.log);
  read_sample(reader, config.sample, config.model.kind);
  read_plugins(reader, config.plugins);
  reader.close();
  problems.raise();
  return loaded;
}

}  // namespace mantissa
