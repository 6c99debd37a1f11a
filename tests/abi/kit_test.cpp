// What reaches the host from plugins: of fsdp_norm (plain C), and of the C++ kit, from which no exception may come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/mini_host.h"
#include "abi/plugin_files.h"
#include "plugin/library.h"

namespace mantissa {
namespace {

using namespace testing_support;
using Call = MiniHost::Call;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One plugin with its context.
class Plugin {
 public:
  Plugin(const fs::path& file, const std::vector<OptionValue>& options)
      : library_(load_plugin(file)), host(check_options(library_.option_specs(), options)) {
    created = table().create(host.get(), host.root, &context_);
  }
  ~Plugin() { table().destroy(context_); }
  const mts_precision& table() const { return library_.table(); }

  mts_status plan(mts_plan& plan) { return table().plan(context_, &plan); }
  mts_status clip(mts_clip_kind kind, double limit, double norm_type, double* norm) {
    const mts_clip clip{MTS_HEADER(mts_clip), kind, 1, limit, norm_type};
    const mts_step now = step();
    return table().clip(context_, &now, &clip, norm);
  }
  mts_status update() {
    const mts_step now = step();
    return table().update(context_, &now);
  }

 private:
  mts_step step() const {
    mts_step step{};
    step.header = MTS_HEADER(mts_step);
    step.root = host.root;
    return step;
  }
  PluginLibrary library_;
  mts_context* context_ = nullptr;

 public:
  MiniHost host;
  mts_status created = MTS_OK;
};

mts_plan float32_plan() {
  return {MTS_HEADER(mts_plan), MTS_F32, MTS_F32, MTS_F32, MTS_F32, MTS_F32, MTS_DTYPE_NONE, 0, 0};
}

class FsdpNormTest : public ::testing::Test {
 protected:
  static Plugin make(const std::vector<OptionValue>& options = {}) {
    return Plugin(shipped_plugin("fsdp_norm"), options);
  }
  double norm_ = -1;
};

TEST_F(FsdpNormTest, Plan_Defaults_IsFloat32) {
  Plugin plugin = make();
  mts_plan plan = float32_plan();
  ASSERT_EQ(plugin.plan(plan), MTS_OK);
  EXPECT_EQ(plan.storage_dtype, MTS_F32);
  EXPECT_EQ(plan.param_dtype, MTS_F32);
  EXPECT_EQ(plan.reduce_dtype, MTS_F32);
  EXPECT_EQ(plan.scales_loss, 0);
}

TEST_F(FsdpNormTest, Plan_Bfloat16Options_AreTakenEachForItself) {
  mts_plan plan = float32_plan();
  ASSERT_EQ(make({{"param_dtype", "bfloat16", "a"}}).plan(plan), MTS_OK);
  EXPECT_EQ(plan.param_dtype, MTS_BF16);
  EXPECT_EQ(plan.reduce_dtype, MTS_F32);
  plan = float32_plan();
  ASSERT_EQ(make({{"reduce_dtype", "bfloat16", "a"}}).plan(plan), MTS_OK);
  EXPECT_EQ(plan.param_dtype, MTS_F32);
  EXPECT_EQ(plan.reduce_dtype, MTS_BF16);
}

TEST_F(FsdpNormTest, Clip_Norm_CallsTheShardedClipOnTheRoot) {
  Plugin plugin = make();
  ASSERT_EQ(plugin.clip(MTS_CLIP_NORM, 0.5, 3, &norm_), MTS_OK);
  EXPECT_THAT(plugin.host.calls, ElementsAre(Call{"clip_grad_norm", {0.5, 3}}));
  EXPECT_EQ(norm_, 5.0);
}

TEST_F(FsdpNormTest, Clip_None_OnlyMeasures) {
  Plugin plugin = make();
  ASSERT_EQ(plugin.clip(MTS_CLIP_NONE, 1e300, 2, &norm_), MTS_OK);
  EXPECT_THAT(plugin.host.calls, ElementsAre(Call{"grad_norm", {2}}));
  EXPECT_EQ(norm_, 5.0);
}

TEST_F(FsdpNormTest, Clip_Value_IsUnsupportedWithText) {
  Plugin plugin = make();
  EXPECT_EQ(plugin.clip(MTS_CLIP_VALUE, 0.5, 2, &norm_), MTS_UNSUPPORTED);
  EXPECT_THAT(plugin.host.failure, HasSubstr("clip kind 2"));
  EXPECT_TRUE(plugin.host.calls.empty());
}

TEST_F(FsdpNormTest, Clip_ServiceFails_ReturnsItsStatus) {
  Plugin plugin = make();
  plugin.host.service_status = MTS_COMM;
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 0.5, 2, &norm_), MTS_COMM);
}

class KitTest : public ::testing::Test {
 protected:
  static Plugin make(const std::vector<OptionValue>& options = {}) { return Plugin(test_plugin("throws"), options); }
  double norm_ = -1;
};

TEST_F(KitTest, Create_Throws_IsAStatusWithText) {
  Plugin plugin = make({{"refuse", true, "a"}});
  EXPECT_EQ(plugin.created, MTS_INTERNAL);
  EXPECT_EQ(plugin.host.failure, "told to refuse");
}

TEST_F(KitTest, Clip_ThrowsStdException_IsAStatusWithText) {
  Plugin plugin = make();
  ASSERT_EQ(plugin.created, MTS_OK);
  EXPECT_EQ(plugin.clip(MTS_CLIP_VALUE, 1, 2, &norm_), MTS_INTERNAL);
  EXPECT_EQ(plugin.host.failure, "went wrong in clip");
}

TEST_F(KitTest, Clip_ThrowsBadAlloc_IsNoMemory) {
  Plugin plugin = make({{"mode", "memory", "a"}});
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 1, 2, &norm_), MTS_NO_MEMORY);
  EXPECT_EQ(plugin.host.failure, "out of memory");
}

TEST_F(KitTest, Clip_ThrowsFailure_IsItsStatusAndText) {
  Plugin plugin = make({{"mode", "status", "a"}});
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 1, 2, &norm_), MTS_UNSUPPORTED);
  EXPECT_EQ(plugin.host.failure, "not for me");
}

TEST_F(KitTest, Clip_ThrowsAnInt_IsInternal) {
  Plugin plugin = make({{"mode", "unknown", "a"}});
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 1, 2, &norm_), MTS_INTERNAL);
  EXPECT_FALSE(plugin.host.failure.empty());
}

TEST_F(KitTest, Clip_ServiceFails_IsThatStatusAndLeavesTheHostsText) {
  Plugin plugin = make();
  plugin.host.service_status = MTS_COMM;
  plugin.host.failure = "rank 1 did not answer";
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 1, 2, &norm_), MTS_COMM);
  EXPECT_EQ(plugin.host.failure, "rank 1 did not answer");
}

TEST_F(KitTest, Clip_Succeeds_ReturnsTheNorm) {
  Plugin plugin = make();
  EXPECT_EQ(plugin.clip(MTS_CLIP_NORM, 2, 3, &norm_), MTS_OK);
  EXPECT_THAT(plugin.host.calls, ElementsAre(Call{"clip_grad_norm", {1.0, 3}}));
  EXPECT_EQ(norm_, 5.0);
}

TEST_F(KitTest, Options_OfEveryType_AreRead) {
  Plugin plugin = make({{"count", int64_t{9}, "a"}});
  mts_plan plan = float32_plan();
  ASSERT_EQ(plugin.plan(plan), MTS_OK);
  EXPECT_EQ(plan.reserved, 9);
}

TEST_F(KitTest, Options_NotDeclared_IsAStatusWithText) {
  Plugin plugin = make();
  EXPECT_EQ(plugin.update(), MTS_ABSENT);
  EXPECT_THAT(plugin.host.failure, HasSubstr("undeclared"));
}

TEST(KitTable_SlotsThatAreNotOverridden, AreNull) {
  const PluginLibrary library = load_plugin(test_plugin("minimal"));
  const mts_precision& table = library.table();
  EXPECT_EQ(table.clip, nullptr);
  EXPECT_EQ(table.loss_scale, nullptr);
  EXPECT_EQ(table.decide, nullptr);
  EXPECT_EQ(table.save_state, nullptr);
  EXPECT_EQ(table.extension, nullptr);
  EXPECT_EQ(table.clip_kinds, 1u);
  EXPECT_TRUE(library.option_specs().empty());
  const PluginLibrary other = load_plugin(test_plugin("throws"));
  EXPECT_NE(other.table().clip, nullptr);
  EXPECT_NE(other.table().update, nullptr);
  EXPECT_EQ(other.table().decide, nullptr);
}

TEST(KitTable_DestroyOfNull, IsAllowed) {
  load_plugin(test_plugin("minimal")).table().destroy(nullptr);
  load_plugin(shipped_plugin("fsdp_norm")).table().destroy(nullptr);
}

}  // namespace
}  // namespace mantissa
