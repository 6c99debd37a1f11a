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

// Mean over ranks of the gradients of the unsharded module, by name.
std::map<std::string, Tensor> reference_gradients(Net net, int world_size, int64_t d = 5) {
  for (int rank = 0; rank < world_size; ++rank) (loss_of(net(batch(rank, d).to(net->head->weight.scalar_type()))) / world_size).backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& p : net->named_parameters()) {
    if (p.value().grad().defined()) gradients[p.key()] = p.value().grad().reshape({-1});
  }
  return gradients;
}

void expect_gradients(const Root& root, const std::map<std::string, Tensor>& want, double tolerance) {
  for (const FlatParameter* flat : root.trainable()) {
    ASSERT_TRUE(flat->shard().grad().defined());
    for (const Piece& piece : flat->pieces()) {
      const std::string& name = flat->members()[piece.parameter].name;
      const Tensor got = flat->shard().grad().narrow(0, piece.shard_offset, piece.numel);
      const auto found = want.find(name);
      const Tensor wanted = found == want.end() ? torch::zeros({piece.numel}) : found->second.narrow(0, piece.parameter_offset, piece.numel);
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
    EXPECT_NEAR(world.all_reduce(mine * mine), squares, 1e-5 * squares) << "partial norms, the replicated unit on rank 0 alone";
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
  try {
    plan_units(pair, false, {});
    ADD_FAILURE() << "tied parameters in two units were taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("first.w"), ::testing::HasSubstr("second.w")));
  }
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
    try {
      model(batch(0));
      ADD_FAILURE() << "a moved parameter was used";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("block0.a.weight"));
    }
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
    packet.call_hash = model.root().call_hash();
    world.impl().exchange.agree(Operation::backward, packet);
  });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("ran different units"));
}

TEST(EngineFaults, OneRankFails_EveryRankGetsItsCause) {
  const JobOutcome outcome = test::job_on_ranks(3, [](const World& world) {
    Exchange& exchange = world.impl().exchange;
    if (world.rank() == 1) exchange.remember_failure(std::make_exception_ptr(Error("the disk of rank 1 is full", ExitCode::checkpoint)));
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
