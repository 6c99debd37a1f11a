// What a user of the library writes: a Sequential, and a module with a loop over units, a unit called twice, tuple
// results, in-place operations on a unit's arguments and results, and a tied head. Sharded runs equal the unsharded
// one.
#include <torch/torch.h>

#include "mantissa/clip.h"
#include "mantissa/fully_shard.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

struct BlockImpl : nn::Module {  // an ordinary module: knows nothing of sharding
  explicit BlockImpl(int64_t d) {
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({d})));
    in = register_module("in", nn::Linear(d, 4 * d));
    out = register_module("out", nn::Linear(4 * d, d));
  }
  std::tuple<Tensor, Tensor> forward(Tensor h, Tensor scale) {
    h = h.mul_(1.01);
    auto y = out(torch::gelu(in(norm(h))));
    return {h + y * scale, y.pow(2).mean()};
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear in{nullptr}, out{nullptr};
};
TORCH_MODULE(Block);

struct TinyGptImpl : nn::Module {  // arbitrary forward code
  TinyGptImpl(int64_t d, int layers) {
    tok = register_module("tok", nn::Embedding(64, d));
    for (int i = 0; i < layers; ++i) blocks.push_back(register_module("block" + std::to_string(i), Unit<Block>(d)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({d})));
  }
  Tensor forward(Tensor idx, double factor) {
    Tensor h = tok(idx), aux = torch::zeros({}), s = torch::full({}, factor);
    for (auto& block : blocks) {
      auto [y, a] = block(h, s);
      h = y;
      aux = aux + a;
    }
    h = std::get<0>(blocks[1](h, s));                     // the same unit again
    h += 1;                                               // in place on a unit's output
    return F::linear(norm(h), tok->weight) + 1e-3 * aux;  // tied to the embedding
  }
  nn::Embedding tok{nullptr};
  std::vector<Unit<Block>> blocks;
  nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(TinyGpt);

Tensor slice(const Tensor& t, int rank, int world_size) {
  return t.tensor_split(world_size)[static_cast<size_t>(rank)];
}

struct SequentialTask {
  static auto make() {
    return nn::Sequential(nn::Linear(16, 33), nn::ReLU(nn::ReLUOptions(true)), nn::Linear(33, 7), nn::Tanh(),
                          nn::Linear(7, 1));
  }
  template <class Model>
  static Tensor loss(Model& model, int key, int rank, int world_size) {
    torch::manual_seed(key);
    auto x = torch::randn({12, 16});
    Tensor y;
    if constexpr (requires { model->forward(x); }) {
      y = model->forward(slice(x, rank, world_size));
    } else {
      y = model(slice(x, rank, world_size));
    }
    return (y - slice(x.sum(1, true), rank, world_size)).pow(2).mean();
  }
};

struct GptTask {
  static auto make() { return TinyGpt(24, 4); }
  template <class Model>
  static Tensor loss(Model& model, int key, int rank, int world_size) {
    torch::manual_seed(key);
    auto x = slice(torch::randint(64, {12, 11}), rank, world_size);
    Tensor logits;
    if constexpr (requires { model->forward(x, 0.5); }) {
      logits = model->forward(x.narrow(1, 0, 10), 0.5);
    } else {
      logits = model(x.narrow(1, 0, 10), 0.5);
    }
    return F::cross_entropy(logits.reshape({-1, 64}), x.narrow(1, 1, 10).reshape({-1}));
  }
};

// eps is larger than usual: where the true gradient is 0, AdamW follows rounding errors at full speed.
// Two micro-batches a step, an evaluation in between; returns the losses and norms.
template <class Params, class Clip, class Loss>
std::vector<double> train(Params params, Clip clip, Loss loss_of) {
  torch::optim::AdamW optimizer(params, torch::optim::AdamWOptions(3e-3).eps(1e-6));
  std::vector<double> log;
  for (int step = 0; step < 8; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      auto loss = loss_of(step * 2 + micro) / 2;
      loss.backward();
      log.push_back(loss.template item<double>());
    }
    log.push_back(clip());
    optimizer.step();
    optimizer.zero_grad();
    const torch::NoGradGuard no_grad;
    log.push_back(loss_of(999).template item<double>());
  }
  return log;
}

template <class Task>
void expect_equal_to_unsharded(const World& world, const ShardOptions& options, int most_units) {
  torch::manual_seed(0);
  auto reference = Task::make();
  torch::manual_seed(world.rank());  // rank 0's parameters count
  auto model = fully_shard(Task::make(), world, options);
  const auto whole = train(
      reference->parameters(), [&] { return nn::utils::clip_grad_norm_(reference->parameters(), 0.5); },
      [&](int key) { return Task::loss(reference, key, 0, 1); });
  const auto mine = train(
      model.shards(), [&] { return clip_grad_norm_(model.root(), 0.5); },
      [&](int key) { return Task::loss(model, key, world.rank(), world.size()); });
  ASSERT_EQ(whole.size(), mine.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool is_norm = i % 4 == 2;
    const double value = is_norm ? mine[i] : world.all_reduce(mine[i]) / world.size();
    EXPECT_NEAR(value, whole[i], 1e-5 * std::abs(whole[i])) << "entry " << i;
  }
  EXPECT_EQ(stats(model.root()).gathered_bytes, 0u);
  if (options.sharding == Sharding::full && options.reshard_after_forward) {
    EXPECT_LE(stats(model.root()).peak_units, most_units);
  }
  with_full_parameters(model.root(), [&] {
    const auto a = reference->parameters(), b = model.module()->parameters();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_LT((a[i] - b[i]).abs().max().template item<double>(), 1e-5);
  });
}

class Library : public ::testing::TestWithParam<int> {};

template <class Task>
void try_all_options(int world_size, int most_units) {
  test::on_ranks(world_size, [&](const World& world) {
    for (const Sharding sharding : {Sharding::full, Sharding::none}) {
      for (const bool reshard : {true, false}) {
        ShardOptions options;
        options.sharding = sharding;
        options.reshard_after_forward = reshard;
        expect_equal_to_unsharded<Task>(world, options, most_units);
      }
    }
  });
}

TEST_P(Library, Sequential_EqualsUnsharded) { try_all_options<SequentialTask>(GetParam(), 2); }
// The unit that is called twice stays gathered between its two backward passes: one unit more.
TEST_P(Library, ArbitraryForward_EqualsUnsharded) { try_all_options<GptTask>(GetParam(), 4); }

INSTANTIATE_TEST_SUITE_P(Ranks, Library, ::testing::Values(1, 2, 3, 4), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mantissa
