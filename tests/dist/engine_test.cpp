// The engine, one property a test: what is counted, what is freed, what is refused.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "base/error.h"
#include "fsdp/root.h"
#include "grad/gradients.h"
#include "mantissa/clip.h"
#include "mantissa/fully_shard.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

struct TwoLinearImpl : nn::Module {
  explicit TwoLinearImpl(int64_t d) {
    a = register_module("a", nn::Linear(d, d));
    b = register_module("b", nn::Linear(d, d));
  }
  Tensor forward(Tensor x) {
    if (throws) throw std::runtime_error("the user's own");
    return b(torch::tanh(a(x)));
  }
  nn::Linear a{nullptr}, b{nullptr};
  bool throws = false;
};
TORCH_MODULE(TwoLinear);

struct NetImpl : nn::Module {
  explicit NetImpl(int64_t d, int layers = 3) {
    for (int i = 0; i < layers; ++i) blocks.push_back(register_module("block" + std::to_string(i), Unit<TwoLinear>(d)));
    head = register_module("head", nn::Linear(d, 1));
  }
  Tensor forward(Tensor x) {
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
  std::vector<Unit<TwoLinear>> blocks;
  nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

Net seeded_net(int64_t d = 5) {
  torch::manual_seed(7);
  return Net(d);
}

Tensor batch(int rank, int64_t d = 5) {
  torch::manual_seed(100 + rank);
  return torch::randn({4, d});
}

Tensor loss_of(const Tensor& y) { return y.pow(2).mean(); }

// What the parameters of an unsharded module have in grad(), flat, by name.
std::map<std::string, Tensor> gradients_of(const nn::Module& module) {
  std::map<std::string, Tensor> gradients;
  for (const auto& p : module.named_parameters()) {
    if (p.value().grad().defined()) gradients[p.key()] = p.value().grad().reshape({-1});
  }
  return gradients;
}

// `call` must throw a UsageError that names all of `words`.
template <class Call>
void expect_usage_error(Call call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    for (const std::string& word : words) EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
  }
}

// Mean over ranks of the gradients of the unsharded module, by name.
std::map<std::string, Tensor> reference_gradients(Net net, int world_size, int64_t d = 5) {
  for (int rank = 0; rank < world_size; ++rank)
    (loss_of(net(batch(rank, d).to(net->head->weight.scalar_type()))) / world_size).backward();
  return gradients_of(*net);
}

void expect_gradients(const Root& root, const std::map<std::string, Tensor>& want, double tolerance) {
  for (const FlatParameter* flat : root.trainable()) {
    ASSERT_TRUE(flat->shard().grad().defined());
    for (const Piece& piece : flat->pieces()) {
      const std::string& name = flat->members()[piece.parameter].name;
      const Tensor got = flat->shard().grad().narrow(0, piece.shard_offset, piece.numel);
      const auto found = want.find(name);
      const Tensor wanted = found == want.end() ? torch::zeros({piece.numel})
                                                : found->second.narrow(0, piece.parameter_offset, piece.numel);
      EXPECT_LT((got.to(torch::kDouble) - wanted.to(torch::kDouble)).abs().max().item<double>(), tolerance) << name;
    }
  }
}

class Engine : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Engine, ::testing::Values(1, 2, 3, 5, 8), ::testing::PrintToStringParamName());

TEST_P(Engine, Backward_GivesMeanOverRanks) {
  test::on_ranks(GetParam(), [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    loss_of(model(batch(world.rank()))).backward();
    expect_gradients(model.root(), reference_gradients(seeded_net(), world.size()), 1e-6);
  });
}

TEST_P(Engine, Float64Module_KeepsFloat64ToTheEnd) {
  test::on_ranks(GetParam(), [](const World& world) {
    Net net = seeded_net();
    net->to(torch::kDouble);
    auto model = fully_shard(net, world);
    loss_of(model(batch(world.rank()).to(torch::kDouble))).backward();
    Net reference = seeded_net();
    reference->to(torch::kDouble);
    expect_gradients(model.root(), reference_gradients(reference, world.size()), 1e-14);
    EXPECT_EQ(model.shards()[0].scalar_type(), torch::kDouble);
  });
}

TEST_P(Engine, StorageFloat64OfFloat32Module_ComputesInFloat64) {
  test::on_ranks(GetParam(), [](const World& world) {
    ShardOptions options;
    options.storage_dtype = torch::kDouble;
    auto model = fully_shard(seeded_net(), world, options);
    loss_of(model(batch(world.rank()).to(torch::kDouble))).backward();
    Net reference = seeded_net();
    reference->to(torch::kDouble);
    expect_gradients(model.root(), reference_gradients(reference, world.size()), 1e-14);
  });
}

TEST(EngineFormats, BFloat16Parameters_KeepFloat32ShardsFromTheFloat32Weights) {
  test::on_ranks(2, [](const World& world) {
    ShardOptions options;
    options.param_dtype = torch::kBFloat16;
    auto model = fully_shard(seeded_net(), world, options);
    loss_of(model(batch(world.rank()).to(torch::kBFloat16)).to(torch::kFloat)).backward();
    expect_gradients(model.root(), reference_gradients(seeded_net(), world.size()), 2e-2);
    Net reference = seeded_net();
    model.root().visit_full([&](const ParameterEntry& entry, const Tensor& full) {
      EXPECT_TRUE(torch::equal(full, reference->named_parameters()[entry.name])) << entry.name;
    });
  });
}

TEST(EngineFormats, BFloat16Wire_RoundsTheSumOnce) {
  test::on_ranks(3, [](const World& world) {
    ShardOptions options;
    options.reduce_dtype = torch::kBFloat16;
    auto model = fully_shard(seeded_net(), world, options);
    loss_of(model(batch(world.rank()))).backward();
    expect_gradients(model.root(), reference_gradients(seeded_net(), world.size()), 2e-2);
  });
}

TEST_P(Engine, FrozenParameters_HaveNoGradientAndNoShard) {
  test::on_ranks(GetParam(), [](const World& world) {
    const auto freeze = [](Net net) {
      net->blocks[1]->a->weight.set_requires_grad(false);
      for (auto& p : net->blocks[2]->parameters()) p.set_requires_grad(false);
      return net;
    };
    auto model = fully_shard(freeze(seeded_net()), world);
    loss_of(model(batch(world.rank()))).backward();
    const auto want = reference_gradients(freeze(seeded_net()), world.size());
    expect_gradients(model.root(), want, 1e-6);
    double squares = 0;
    for (const auto& [name, gradient] : want) squares += gradient.to(torch::kDouble).pow(2).sum().item<double>();
    EXPECT_NEAR(total_norm(model.root()), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    for (const FlatParameter* flat : model.root().trainable()) {
      for (const auto& member : flat->members()) EXPECT_TRUE(want.contains(member.name)) << member.name;
    }
  });
}

TEST_P(Engine, ReplicatedUnit_CountsOnceInTheNorm) {
  test::on_ranks(GetParam(), [](const World& world) {
    ShardOptions options;
    options.replicate = {"block1"};
    auto model = fully_shard(seeded_net(), world, options);
    loss_of(model(batch(world.rank()))).backward();
    const auto want = reference_gradients(seeded_net(), world.size());
    expect_gradients(model.root(), want, 1e-6);
    double squares = 0;
    for (const auto& [name, gradient] : want) squares += gradient.to(torch::kDouble).pow(2).sum().item<double>();
    EXPECT_NEAR(total_norm(model.root()), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    const double mine = model.root().partial_norm().value();
    EXPECT_NEAR(world.all_reduce(mine * mine), squares, 1e-5 * squares)
        << "partial norms, the replicated unit on rank 0 alone";
  });
}

TEST_P(Engine, Microbatches_AddUp) {
  for (const bool every : {true, false}) {
    test::on_ranks(GetParam(), [every](const World& world) {
      ShardOptions options;
      options.reduce_every_microbatch = every;
      auto model = fully_shard(seeded_net(), world, options);
      for (int m = 0; m < 3; ++m) {
        model.root().set_last_microbatch(m == 2);
        loss_of(model(batch(world.rank()))).backward();
        if (!every && m < 2) {
          EXPECT_THROW(total_norm(model.root()), OrderError);
        }
      }
      auto want = reference_gradients(seeded_net(), world.size());
      for (auto& [name, gradient] : want) gradient = gradient * 3;
      expect_gradients(model.root(), want, 3e-6);
    });
  }
}

TEST_P(Engine, PartialNorm_IsThatOfTheShard) {
  test::on_ranks(GetParam(), [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    for (const double p : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
      model.root().clear_gradients();
      model.root().set_norm_type(p);
      loss_of(model(batch(world.rank()))).backward();
      double sum = 0, largest = 0;
      for (const FlatParameter* flat : model.root().trainable()) {
        for (const Piece& piece : flat->pieces()) {
          const Tensor g = flat->shard().grad().narrow(0, piece.shard_offset, piece.numel).to(torch::kDouble).abs();
          sum += g.pow(p).sum().item<double>();
          largest = std::max(largest, g.max().item<double>());
        }
      }
      const double want = std::isinf(p) ? largest : std::pow(sum, 1 / p);
      EXPECT_NEAR(model.root().partial_norm().value(), want, 1e-12 * want) << "p = " << p;
    }
  });
}

TEST(EngineNorm, UnusedUnit_CountsAsZerosAndNobodyWaits) {
  test::on_ranks(2, [](const World& world) {
    struct SkippingImpl : nn::Module {
      SkippingImpl() {
        used = register_module("used", Unit<TwoLinear>(5));
        unused = register_module("unused", Unit<TwoLinear>(5));
      }
      Tensor forward(Tensor x) { return used(x); }
      Unit<TwoLinear> used{nullptr}, unused{nullptr};
    };
    auto model = fully_shard(nn::ModuleHolder<SkippingImpl>(std::make_shared<SkippingImpl>()), world);
    loss_of(model(batch(world.rank()))).backward();
    EXPECT_GT(total_norm(model.root()), 0);
    for (const FlatParameter* flat : model.root().trainable()) {
      if (flat->members()[0].name.starts_with("unused")) {
        EXPECT_EQ(flat->shard().grad().abs().max().item<double>(), 0);
      }
    }
  });
}

TEST(EngineTies, TiedAcrossUnits_RefusedWithBothNames) {
  const auto shared = torch::zeros({3}).set_requires_grad(true);
  struct HolderImpl : nn::Module {
    explicit HolderImpl(const Tensor& t) { w = register_parameter("w", t); }
    Tensor forward(Tensor x) { return x * w; }
    Tensor w;
  };
  using Holder = nn::ModuleHolder<HolderImpl>;
  struct PairImpl : nn::Module {
    explicit PairImpl(const Tensor& t) {
      register_module("first", Unit<Holder>(t));
      register_module("second", Unit<Holder>(t));
    }
    Tensor forward(Tensor x) { return x; }
  };
  PairImpl pair(shared);
  expect_usage_error([&] { plan_units(pair, false, {}); }, {"first.w", "second.w"});
}

// A Linear on a 3-D input returns a view; an in-place operation on it used to bypass the hook that gathers before
// backward.
TEST(EngineHooks, InPlaceOnAViewThatAUnitReturned_StillGathers) {
  test::on_ranks(2, [](const World& world) {
    const auto make = [] {
      torch::manual_seed(3);
      return nn::Sequential(nn::Linear(4, 6), nn::ReLU(nn::ReLUOptions(true)), nn::Linear(6, 6),
                            nn::ReLU(nn::ReLUOptions(true)), nn::Linear(6, 2));
    };
    auto model = fully_shard(make(), world);
    auto reference = make();
    const Tensor x = torch::linspace(-1, 1, 24).view({2, 3, 4});
    auto y = model(x.clone());
    y += 1;
    loss_of(y).backward();
    auto z = reference->forward(x.clone());
    z += 1;
    loss_of(z).backward();
    expect_gradients(model.root(), gradients_of(*reference), 1e-6);
  });
}

struct ChoosyImpl : nn::Module {
  ChoosyImpl() {
    always = register_module("always", nn::Linear(5, 5));
    sometimes = register_module("sometimes", nn::Linear(5, 5));
  }
  Tensor forward(Tensor x) { return uses_both ? always(x) + sometimes(x) : always(x); }
  nn::Linear always{nullptr}, sometimes{nullptr};
  bool uses_both = true;
};
TORCH_MODULE(Choosy);

struct ChoosyNetImpl : nn::Module {
  ChoosyNetImpl() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(
          register_module("block" + std::to_string(i), Unit<Choosy>(std::make_shared<detail::UnitImplOf<Choosy>>())));
    first = register_parameter("first", torch::ones({5}));
  }
  Tensor forward(Tensor x) {
    x = x * first;
    for (auto& block : blocks) x = block(x);
    return x;
  }
  std::vector<Unit<Choosy>> blocks;
  Tensor first;
};
TORCH_MODULE(ChoosyNet);

// Reduces used to start when the last parameter had its gradient: on a rank that used fewer, in another order.
TEST(EngineOrder, ParameterUnusedOnOneRankOnly_NobodyWaits) {
  test::on_ranks(3, [](const World& world) {
    torch::manual_seed(1);
    auto model = fully_shard(ChoosyNet(), world);
    model.module()->blocks[1]->uses_both = world.rank() != 1;
    model.module()->blocks[2]->uses_both = world.rank() == 2;
    loss_of(model(batch(world.rank()))).backward();
    EXPECT_GT(total_norm(model.root()), 0);
    EXPECT_LE(stats(model.root()).peak_units, 3);
  });
}

struct ConditionedImpl : nn::Module {
  ConditionedImpl() { linear = register_module("linear", nn::Linear(5, 5)); }
  Tensor forward(Tensor x, Tensor condition) { return x + torch::tanh(linear(x * condition)); }
  nn::Linear linear{nullptr};
};
TORCH_MODULE(Conditioned);

struct ConditionedNetImpl : nn::Module {
  ConditionedNetImpl() {
    embed = register_module("embed", nn::Linear(5, 5));
    for (int i = 0; i < 6; ++i)
      blocks.push_back(register_module("block" + std::to_string(i),
                                       Unit<Conditioned>(std::make_shared<detail::UnitImplOf<Conditioned>>())));
  }
  Tensor forward(Tensor x) {
    const Tensor condition = embed(x);
    for (auto& block : blocks) x = block(x * 1.0, condition);
    return x;
  }
  nn::Linear embed{nullptr};
  std::vector<Unit<Conditioned>> blocks;
};
TORCH_MODULE(ConditionedNet);

TEST(EngineHooks, TensorThatEveryUnitTakes_DoesNotKeepThemGathered) {
  test::on_ranks(2, [](const World& world) {
    torch::manual_seed(1);
    auto model = fully_shard(ConditionedNet(), world);
    loss_of(model(batch(world.rank()))).backward();
    EXPECT_LE(stats(model.root()).peak_units, 3);
    torch::manual_seed(1);
    ConditionedNet reference;
    for (int rank = 0; rank < world.size(); ++rank)
      (loss_of(reference->forward(batch(rank))) / world.size()).backward();
    expect_gradients(model.root(), gradients_of(*reference), 1e-6);
  });
}

// A leaf's gradient is complete before nodes that work on weights alone: it must not free the unit.
struct NormedImpl : nn::Module {
  NormedImpl() {
    v = register_parameter("v", torch::randn({5, 5}));
    g = register_parameter("g", torch::ones({1}));
  }
  Tensor forward(Tensor query) { return torch::linear(query, g * v / v.norm()); }
  Tensor v, g;
};
TORCH_MODULE(Normed);

struct QueryNetImpl : nn::Module {
  QueryNetImpl() {
    query = register_parameter("query", torch::randn({3, 5}));
    unit = register_module("unit", Unit<Normed>(std::make_shared<detail::UnitImplOf<Normed>>()));
  }
  Tensor forward(Tensor x) { return unit(query) * x; }
  Tensor query;
  Unit<Normed> unit{nullptr};
};
TORCH_MODULE(QueryNet);

TEST(EngineHooks, LeafAsInput_DoesNotFreeTooEarly) {
  test::on_ranks(2, [](const World& world) {
    torch::manual_seed(2);
    auto model = fully_shard(QueryNet(), world);
    loss_of(model(torch::ones({3, 5}))).backward();
    torch::manual_seed(2);
    QueryNet reference;
    loss_of(reference->forward(torch::ones({3, 5}))).backward();
    expect_gradients(model.root(), gradients_of(*reference), 1e-6);
  });
}

TEST(EngineShards, OptimizerOfTheUsers_IsSeenByTheNextForward) {
  for (const Sharding sharding : {Sharding::full, Sharding::none}) {
    test::on_ranks(2, [sharding](const World& world) {
      ShardOptions options;
      options.sharding = sharding;
      options.param_dtype = torch::kBFloat16;
      options.reshard_after_forward = false;
      auto model = fully_shard(seeded_net(), world, options);
      const Tensor x = batch(0).to(torch::kBFloat16);
      torch::optim::SGD optimizer(model.shards(), torch::optim::SGDOptions(1.0));
      auto y = model(x);
      loss_of(y.to(torch::kFloat)).backward();
      auto kept = model(x);  // a forward without backward leaves parameters gathered
      optimizer.step();
      const torch::NoGradGuard no_grad;
      EXPECT_GT((model(x) - y).abs().max().item<double>(), 0.1);
    });
  }
}

TEST(EngineShards, GradientThatTheUserAssigned_IsGoneOnWith) {
  test::on_ranks(2, [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    loss_of(model(batch(world.rank()))).backward();
    for (Tensor shard : model.shards()) shard.mutable_grad() = shard.grad() * 2;
    loss_of(model(batch(world.rank()))).backward();
    auto want = reference_gradients(seeded_net(), world.size());
    for (auto& [name, gradient] : want) gradient = gradient * 3;
    expect_gradients(model.root(), want, 3e-6);
  });
}

TEST(EngineShards, WriteBack_KeepsTheDigitsOfWhatWasNotWritten) {
  test::on_ranks(2, [](const World& world) {
    ShardOptions options;
    options.param_dtype = torch::kBFloat16;
    auto model = fully_shard(seeded_net(), world, options);
    with_full_parameters(
        model.root(),
        [&] {
          const torch::NoGradGuard no_grad;
          model.module()->head->bias.fill_(3);
        },
        true);
    Net reference = seeded_net();
    model.root().visit_full([&](const ParameterEntry& entry, const Tensor& full) {
      if (entry.name == "head.bias") {
        EXPECT_EQ(full.item<float>(), 3);
      } else {
        EXPECT_TRUE(torch::equal(full, reference->named_parameters()[entry.name])) << entry.name;
      }
    });
    const auto scribble = [&] {
      const torch::NoGradGuard no_grad;
      model.module()->head->bias.fill_(4);
    };
    EXPECT_THROW(with_full_parameters(model.root(), scribble), UsageError);
  });
}

TEST(EngineShards, BufferThatIsAView_BecomesRankZerosAndNothingElse) {
  test::on_ranks(2, [](const World& world) {
    struct BufferedImpl : nn::Module {
      explicit BufferedImpl(const Tensor& b) {
        register_buffer("b", b);
        weight = register_parameter("weight", torch::ones({2}));
      }
      Tensor forward(Tensor x) { return x * weight; }
      Tensor weight;
    };
    const Tensor big = torch::full({4, 8}, 1.0 + world.rank());
    auto model = fully_shard(nn::ModuleHolder<BufferedImpl>(std::make_shared<BufferedImpl>(big.slice(1, 0, 2))), world);
    EXPECT_EQ(big.slice(1, 0, 2).sum().item<double>(), 8);
    EXPECT_EQ(big.slice(1, 2, 8).sum().item<double>(), 24 * (1 + world.rank()));
  });
}

TEST(EngineFaults, DifferentModulesOnRanks_AreRefused) {
  const JobOutcome outcome =
      test::job_on_ranks(2, [](const World& world) { fully_shard(Net(5, world.rank() == 0 ? 2 : 3), world); });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("different modules"));
}

TEST(EngineFaults, ShardingTwice_IsRefused) {
  test::on_ranks(2, [](const World& world) {
    Net net = seeded_net();
    auto model = fully_shard(net, world);
    EXPECT_THROW(fully_shard(net, world), UsageError);
  });
}

TEST(EngineFaults, UnitThatReturnsItsParameter_IsNamed) {
  struct LeakImpl : nn::Module {
    LeakImpl() { weight = register_parameter("weight", torch::ones({3, 2})); }
    Tensor forward(Tensor) { return weight.narrow(0, 0, 2); }
    Tensor weight;
  };
  using Leak = nn::ModuleHolder<LeakImpl>;
  struct LeakNetImpl : nn::Module {
    LeakNetImpl() { leak = register_module("leak", Unit<Leak>(std::make_shared<detail::UnitImplOf<Leak>>())); }
    Tensor forward(Tensor x) { return leak(x); }
    Unit<Leak> leak{nullptr};
  };
  test::on_ranks(2, [](const World& world) {
    auto model = fully_shard(nn::ModuleHolder<LeakNetImpl>(std::make_shared<LeakNetImpl>()), world);
    expect_usage_error([&] { model(torch::ones({2})); }, {"leak"});
  });
}

TEST(EngineUnits, ReferenceArguments_ReachTheForward) {
  struct CachingImpl : nn::Module {
    CachingImpl() { weight = register_parameter("weight", torch::ones({2})); }
    Tensor forward(Tensor x, std::vector<Tensor>& cache) {
      cache.push_back(x * weight);
      return cache.back();
    }
    Tensor weight;
  };
  using Caching = nn::ModuleHolder<CachingImpl>;
  Unit<Caching> unit(std::make_shared<detail::UnitImplOf<Caching>>());
  std::vector<Tensor> cache;
  unit(torch::ones({2}), cache);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(EngineFaults, ExceptionInForward_FreesAndRootGoesOn) {
  test::on_ranks(2, [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    model.module()->blocks[1]->throws = true;
    EXPECT_THROW(model(batch(world.rank())), std::runtime_error);
    EXPECT_EQ(stats(model.root()).gathered_bytes, 0u);
    model.module()->blocks[1]->throws = false;
    loss_of(model(batch(world.rank()))).backward();
    expect_gradients(model.root(), reference_gradients(seeded_net(), world.size()), 1e-6);
  });
}

TEST(EngineFaults, ExceptionInBackward_RootRefusesFurtherUse) {
  test::on_ranks(1, [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    auto x = batch(0).set_requires_grad(true);
    x.register_hook([](const at::TensorBase&) { throw std::runtime_error("the user's own"); });
    auto v = model(x);
    EXPECT_THROW(loss_of(v).backward(), std::runtime_error);
    try {
      model(batch(0));
      ADD_FAILURE() << "the root was used again";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cannot be used any more"));
    }
  });
}

TEST(EngineFaults, ParameterMovedOutOfItsUnit_IsNamed) {
  test::on_ranks(1, [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    model.module()->blocks[0]->a->weight.set_data(torch::zeros({5, 5}));
    expect_usage_error([&] { model(batch(0)); }, {"block0.a.weight"});
  });
}

TEST(EngineFaults, InferenceMode_IsRefused) {
  test::on_ranks(1, [](const World& world) {
    const c10::InferenceMode inference;
    EXPECT_THROW(fully_shard(seeded_net(), world), UsageError);
  });
}

TEST(EngineFaults, NestedUnits_AreRefused) {
  struct InnerImpl : nn::Module {
    InnerImpl() { inner = register_module("inner", Unit<TwoLinear>(5)); }
    Tensor forward(Tensor x) { return inner(x); }
    Unit<TwoLinear> inner{nullptr};
  };
  using Inner = nn::ModuleHolder<InnerImpl>;
  struct OuterImpl : nn::Module {
    OuterImpl() { outer = register_module("outer", Unit<Inner>(std::make_shared<detail::UnitImplOf<Inner>>())); }
    Tensor forward(Tensor x) { return outer(x); }
    Unit<Inner> outer{nullptr};
  };
  test::on_ranks(1, [](const World& world) {
    EXPECT_THROW(fully_shard(nn::ModuleHolder<OuterImpl>(std::make_shared<OuterImpl>()), world), UsageError);
  });
}

TEST(EngineFaults, RanksRunDifferentUnits_IsSaidBeforeTheStep) {
  const JobOutcome outcome = test::job_on_ranks(2, [](const World& world) {
    auto model = fully_shard(seeded_net(), world);
    const torch::NoGradGuard no_grad;
    model.module()->blocks[world.rank() == 0 ? 0 : 1](batch(0));  // equal sizes: the gathers mix silently
    Packet packet;
    packet.fingerprint = model.root().call_hash();
    world.impl().exchange.agree(Operation::backward, packet);
  });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("ran different units"));
}

TEST(EngineFaults, OneRankFails_EveryRankGetsItsCause) {
  const JobOutcome outcome = test::job_on_ranks(3, [](const World& world) {
    Exchange& exchange = world.impl().exchange;
    if (world.rank() == 1)
      exchange.remember_failure(std::make_exception_ptr(Error("the disk of rank 1 is full", ExitCode::checkpoint)));
    try {
      exchange.agree(Operation::save);
      ADD_FAILURE() << "a failure was not heard";
    } catch (const PeerFailed& failed) {
      EXPECT_EQ(failed.rank(), 1);
      EXPECT_EQ(failed.exit_code(), ExitCode::checkpoint);
      EXPECT_THAT(failed.what(), ::testing::HasSubstr("the disk of rank 1 is full"));
    } catch (const Error& own) {
      EXPECT_EQ(world.rank(), 1) << own.what();
    }
    throw Error("over");  // the exchange is closed for good: leave without the closing barrier
  });
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("over"));
}

}  // namespace
}  // namespace mantissa
