// Every combination of optimizer, decay, micro-batches, reduction, sharding, ranks and model trains as PyTorch does on
// one process: plain modules, torch::optim with two parameter groups and clip_grad_norm_. The reference takes all rows
// of a step as one batch, so that a sum over micro-batches is compared with the large batch.
// Limits: loss and norm 1e-5 relative, weights 1e-5 absolute. The keys' bias has a true gradient of 0, so that AdamW
// moves it by rounding errors: 5e-5 there.
#include <cmath>
#include <map>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "data/sampler.h"
#include "support/program.h"
#include "support/ranks.h"
#include "support/tensors.h"
#include "train/open_data.h"
#include "train/tensors.h"
#include "train/trainer.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

constexpr int64_t kRowsOfStep = 12, kSteps = 4;
constexpr double kClipAt = 0.1;

struct OptimizerCase {
  const char* name;
  OptimizerKind kind;
  double lr, momentum, weight_decay;
};
constexpr OptimizerCase kOptimizers[] = {{"adamw", OptimizerKind::adamw, 1e-3, 0, 1},
                                         {"sgd", OptimizerKind::sgd, 0.5, 0, 0.1},
                                         {"sgd with momentum", OptimizerKind::sgd, 0.5, 0.9, 0.1}};

struct ShardingCase {
  const char* name;
  bool full, reshard;
};
constexpr ShardingCase kShardings[] = {
    {"full", true, true}, {"kept after forward", true, false}, {"none", false, true}};

Config small_config(const std::string& model) {
  Config config;
  config.run.name = "t";
  config.run.seed = 3;
  config.run.steps = kSteps;
  config.model.kind = model;
  config.model.layers = 2;
  config.model.width = 12;  // shards cut through parameters
  config.model.heads = 2;
  config.model.context = 8;
  config.data.kind = model == "mlp" ? "generated" : "text";
  config.data.path = MANTISSA_SOURCE_DIR "/LICENSE";
  config.data.heldout = 0.02;
  config.data.inputs = 7;
  config.data.classes = 5;
  config.data.heldout_rows = 29;
  config.train.batch = kRowsOfStep;
  config.train.eval_every = 0;
  config.clip.kind = ClipKind::norm;
  config.clip.limit = kClipAt;
  config.log.every = 1;
  return config;
}

void set_optimizer(Config& config, const OptimizerCase& optimizer, Decay decay) {
  config.optimizer.kind = optimizer.kind;
  config.optimizer.lr = optimizer.lr;
  config.optimizer.momentum = optimizer.momentum;
  config.optimizer.weight_decay = optimizer.weight_decay;
  config.optimizer.decay = decay;
}

struct Course {
  std::vector<double> losses, norms;
  double val_loss = 0;
  std::map<std::string, at::Tensor> weights;
};

// ---- the reference

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(torch::nn::Module& module, const OptimizerConfig& config) {
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& p : module.parameters()) (p.dim() >= 2 ? matrices : others).push_back(p);
  const double other_decay = config.decay == Decay::all ? config.weight_decay : 0;
  const auto groups = [&](auto options) {
    return std::vector<torch::optim::OptimizerParamGroup>{
        {matrices, std::make_unique<decltype(options)>(decltype(options)(options).weight_decay(config.weight_decay))},
        {others, std::make_unique<decltype(options)>(decltype(options)(options).weight_decay(other_decay))}};
  };
  if (config.kind == OptimizerKind::adamw) {
    return std::make_unique<torch::optim::AdamW>(groups(torch::optim::AdamWOptions(config.lr)));
  }
  const auto options = torch::optim::SGDOptions(config.lr).momentum(config.momentum);
  return std::make_unique<torch::optim::SGD>(groups(options), options);
}

Course reference(const Config& config) {
  Course course;
  const auto data = open_data(config);
  const auto model = make_model(config.model, config.data, config.run.seed);
  const auto optimizer = torch_optimizer(*model->module(), config.optimizer);
  const Sampler sampler({config.run.seed, kRowsOfStep, 1, data->num_rows()});
  const auto mean_loss = [&](Batch& batch) {  // `batch` must outlive the backward pass
    const BatchTensors tensors = tensors_of(batch);
    return loss_sum(model->logits(tensors.inputs), tensors.targets) / batch.num_targets;
  };
  for (int64_t step = 0; step < config.run.steps; ++step) {
    Batch batch = data->rows(sampler.rows_of(step, 0, {}));
    const at::Tensor loss = mean_loss(batch);
    optimizer->zero_grad();
    loss.backward();
    course.losses.push_back(loss.item<double>());
    course.norms.push_back(torch::nn::utils::clip_grad_norm_(model->module()->parameters(), kClipAt));
    optimizer->step();
  }
  const at::NoGradGuard no_grad;
  Batch heldout = data->heldout_rows(0, data->num_heldout_rows());
  course.val_loss = mean_loss(heldout).item<double>();
  for (const auto& p : model->module()->named_parameters()) course.weights[p.key()] = p.value().detach();
  return course;
}

using Key = std::tuple<std::string, Decay>;  // optimizer, decay

std::map<Key, Course> references(const std::string& model) {
  std::map<Key, Course> all;
  for (const OptimizerCase& optimizer : kOptimizers) {
    for (const Decay decay : {Decay::all, Decay::matrices}) {
      Config config = small_config(model);
      set_optimizer(config, optimizer, decay);
      all[{optimizer.name, decay}] = reference(config);
    }
  }
  return all;
}

// ---- what is tested

class Recorder : public EventListener {
 public:
  void stepped(const StepMetrics& metrics) override {
    course.losses.push_back(metrics.loss);
    course.norms.push_back(metrics.grad_norm);
  }
  Course course;
};

Course trained(const Config& config, const World& world, const std::filesystem::path& folder) {
  Trainer trainer(config, MANTISSA_BUILD_DIR "/plugins/libmantissa-fsdp_norm.so", world);
  Recorder recorder;
  const RunFinished finished = trainer.run(recorder, folder);
  if (world.rank() != 0) return {};
  recorder.course.val_loss = *finished.val_loss;
  const SafetensorsFile file(finished.weights);
  for (const SafetensorsEntry& entry : file.entries()) recorder.course.weights[entry.name] = file.tensor(entry.name);
  return recorder.course;
}

void expect_close(const Course& got, const Course& want, const std::string& what) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]) << what << ", loss of step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 1e-5 * want.norms[i]) << what << ", norm of step " << i;
  }
  EXPECT_NEAR(got.val_loss, want.val_loss, 1e-5 * want.val_loss) << what;
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, weight] : want.weights) {
    const double limit = name.ends_with("attn_qkv.bias") ? 5e-5 : 1e-5;
    EXPECT_LT(test::largest_difference(got.weights.at(name), weight), limit) << what << ", " << name;
  }
}

struct Job {
  const char* model;
  int ranks;
};

class Combinations : public ::testing::TestWithParam<Job> {};

// 72 runs: a rank joins the group once and trains one model after the other.
TEST_P(Combinations, OfOneModelAndWorldSize_TrainAsPyTorchDoes) {
  const test::TempFolder folder;
  test::on_ranks(GetParam().ranks, [&](const World& world) {
    std::map<Key, Course> wanted;
    if (world.rank() == 0) wanted = references(GetParam().model);
    for (const OptimizerCase& optimizer : kOptimizers) {
      for (const Decay decay : {Decay::all, Decay::matrices}) {
        for (const ShardingCase& sharding : kShardings) {
          for (const int64_t microbatches : {1, 3}) {
            for (const bool reduce_every : {true, false}) {
              Config config = small_config(GetParam().model);
              set_optimizer(config, optimizer, decay);
              config.fsdp = {sharding.full, sharding.reshard, reduce_every};
              config.train.microbatches = microbatches;
              config.train.batch = kRowsOfStep / microbatches;
              const Course got = trained(config, world, folder.path());
              if (world.rank() != 0) continue;
              expect_close(got, wanted.at({optimizer.name, decay}),
                           std::string(optimizer.name) + (decay == Decay::all ? "" : ", decay of matrices") +
                               ", sharding " + sharding.name + ", " + std::to_string(microbatches) + " micro-batches" +
                               (reduce_every ? "" : ", reduced at the last"));
            }
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Combinations,
                         ::testing::Values(Job{"gpt", 1}, Job{"gpt", 2}, Job{"gpt", 3}, Job{"mlp", 1}, Job{"mlp", 2},
                                           Job{"mlp", 3}),
                         [](const auto& job) { return job.param.model + std::to_string(job.param.ranks) + "Ranks"; });

// Without this, a setting that changes nothing would pass above.
TEST(CombinationsReference, OfAnyTwoSettings_EndAtOtherWeights) {
  at::set_num_threads(1);
  for (const char* model : {"gpt", "mlp"}) {
    const std::map<Key, Course> all = references(model);
    for (auto one = all.begin(); one != all.end(); ++one) {
      EXPECT_GT(one->second.norms[0], 2 * kClipAt) << "nothing is clipped";
      for (auto other = std::next(one); other != all.end(); ++other) {
        double moved = 0;
        for (const auto& [name, weight] : one->second.weights) {
          moved = std::max(moved, test::largest_difference(weight, other->second.weights.at(name)));
        }
        EXPECT_GT(moved, 2e-4) << model << ": " << std::get<0>(one->first) << " and " << std::get<0>(other->first);
      }
    }
  }
}

}  // namespace
}  // namespace mantissa
