// The settings of a run as plain structs. `load.h` fills them from TOML; the README explains each key for users.
// Each field says its unit and what odd values mean; the defaults here are the defaults of the program.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mantissa {

struct RunConfig {
  std::string name;                    ///< no default; the run folder is dir/name/<UTC time>
  uint64_t seed = 0;                   ///< decides initial weights and batches, whatever the ranks
  int64_t steps = 0;                   ///< optimizer steps, taken or skipped; no default, >= 1
  std::filesystem::path dir = "runs";  ///< relative to the working directory; all other paths are relative to the file
};

struct ModelConfig {
  std::string kind;                           ///< no default; "gpt", for data of kind "text", or "mlp", for "generated"
  int64_t layers = 4;                         ///< blocks, or hidden layers of an mlp
  int64_t width = 256;                        ///< a multiple of heads
  int64_t heads = 4;                          ///< gpt only
  int64_t context = 128;                      ///< bytes of text a row holds; gpt only
  std::optional<std::filesystem::path> init;  ///< safetensors file with the initial weights; absent: from the seed
};

struct DataConfig {
  std::string kind = "text";    ///< or "generated"
  std::filesystem::path path;   ///< no default; text only, so the next
  double heldout = 0.05;        ///< the last part of the file, [0, 1); 0: none, and no evaluation
  uint64_t seed = 0;            ///< decides features and labels of all rows; generated only, so the next
  int64_t inputs = 64;          ///< features of a row
  int64_t classes = 10;         ///< labels are 0 to classes - 1
  int64_t heldout_rows = 2048;  ///< 0: none, and no evaluation
};

struct TrainConfig {
  int64_t batch = 16;                   ///< rows per micro-batch over all ranks
  int64_t microbatches = 1;             ///< accumulated in one step
  int64_t eval_every = 100;             ///< steps; 0: only at the end
  int64_t max_consecutive_skips = 100;  ///< skipped steps in a row that end the run with exit code 5
};

enum class OptimizerKind { adamw, sgd };

enum class Decay {
  all,       ///< every parameter decays
  matrices,  ///< those of two dimensions and more; biases and the weights of norms do not
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;  ///< key `betas`; adamw only
  double eps = 1e-8;                  ///< adamw only
  double weight_decay = 0.1;          ///< decoupled (adamw) or added to the gradient (sgd)
  Decay decay = Decay::all;           ///< which parameters weight_decay is for
  double momentum = 0.0;              ///< sgd only
};

enum class ScheduleKind { constant, linear, cosine };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup = 0;  ///< taken steps
  double floor = 0.1;  ///< of lr, at the last step; not with "constant"
};

/// One key under [precision.options], not yet checked: only the plugin knows what it accepts.
struct OptionValue {
  std::string key;
  std::variant<bool, int64_t, double, std::string> value;
  std::string where;  ///< "file:line:column", or "--set"
};

struct PrecisionConfig {
  std::string plugin;                 ///< no default: a name, or an absolute path
  std::optional<std::string> sha256;  ///< 64 hex digits that the file must have
  std::vector<OptionValue> options;   ///< in the order of the file
  std::string where;                  ///< of the key `plugin`, for messages
};

enum class ClipKind { none, norm, value };

struct ClipConfig {
  ClipKind kind = ClipKind::none;  ///< [clip] absent: none
  double limit = 0;                ///< max_norm or value; >= 0, inf allowed
  double norm_type = 2.0;          ///< p in (0, inf]; with max_norm only
  bool error_if_nonfinite = true;
  std::string where;  ///< of max_norm or value, for messages
};

struct FsdpConfig {
  bool full = true;  ///< sharding = "full"; false is "none": DDP
  bool reshard_after_forward = true;
  bool reduce_every_microbatch = true;  ///< false: reduce only at the last micro-batch; costs a full gradient
};

struct DistributedConfig {
  std::string backend = "auto";  ///< "auto", "gloo"
  double timeout_s = 300;        ///< of every collective
  int64_t threads = 1;           ///< OpenMP threads per rank
};

struct LogConfig {
  int64_t every = 10;       ///< steps between metric rows and progress lines
  bool unit_norms = false;  ///< the gradient norm of each unit in metric rows; one more message a row
};

struct SampleConfig {
  int64_t length = 128;  ///< bytes to generate
  std::string prompt = "In the beginning ";
  double temperature = 0.8;  ///< > 0
  uint64_t seed = 0;
};

struct PluginsConfig {
  bool require_pin = false;  ///< refuse a plugin without precision.sha256
  double slow_ms = 100;      ///< a slot that takes longer is warned about, once
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  ClipConfig clip;
  FsdpConfig fsdp;
  DistributedConfig distributed;
  LogConfig log;
  std::optional<SampleConfig> sample;  ///< absent: no text at the end
  PluginsConfig plugins;
};

}  // namespace mantissa
