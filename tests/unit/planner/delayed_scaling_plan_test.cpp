// SPDX-License-Identifier: Apache-2.0
// Plans of recipes whose scales follow from the steps before: casts of one pass, rows and columns
// of one read, and a state that records what is cast.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

TEST(DelayedScalingPlan, PlanScalesOfTheStepsBeforeInOnePass) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Delayed));
  EXPECT_EQ(operations_of(plan, "weights"),
            (Names{"take_weight_scales", "quantize_w1", "quantize_w2"}));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "take_scales", "quantize_permute_pad", "gemm_fc1",
                   "activation_quantize", "gemm_fc2", "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"take_grad_scales", "quantize_permute_transpose_grad", "gemm_fc2_dgrad",
                   "activation_backward_quantize_transpose", "gemm_fc2_wgrad", "gemm_fc2_wgrad_add",
                   "permute_transpose_x", "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad",
                   "unpermute_grad"}));
  // No gradient needs the scales of the next step, and one launch finds those of a pass.
  EXPECT_EQ(operations_of(plan, "forward_scales"), Names{"update_scales"});
  EXPECT_EQ(operations_of(plan, "backward_scales"), Names{"update_grad_scales"});
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kState),
            (std::set<std::string>{"fc1_amax_history", "fc1_scale", "fc2_amax_history", "fc2_scale",
                                   "fc1_grad_amax_history", "fc1_grad_scale",
                                   "fc2_grad_amax_history", "fc2_grad_scale"}));
  const int64_t experts = plan.layer->local_experts;
  EXPECT_EQ(find_tensor(plan, "fc1_amax_history")->bytes, 4 * 1024 * 3 * experts);
  EXPECT_EQ(find_tensor(plan, "fc2_grad_scale")->bytes, 4 * 2 * experts);
  // Backward has the scales that its forward pass had, whatever the state holds by then. It casts
  // act and x again with them.
  std::set<std::string> saved =
      tensors_of_role(plan_of(layer_of(Recipe::kFp8Current)), TensorRole::kSaved);
  for (const std::string_view cast_again : {"act", "permuted"}) {
    saved.erase(fmt::format("{}_q", cast_again));
    saved.insert(fmt::format("{}_scale", cast_again));
  }
  saved.insert("row_tokens");
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kSaved), saved);
}

TEST(DelayedScalingPlan, TransposeByThemselvesWhatIsCastElsewhere) {
  Layer layer = layer_of(Recipe::kFp8Delayed);
  layer.fuse_activation_transpose = layer.fuse_transpose = false;
  const Plan plan = plan_of(layer);
  EXPECT_NE(find_kernel(plan, "quantize_permute_pad_grad"), nullptr);
  EXPECT_NE(find_kernel(plan, "transpose_grad"), nullptr);
  EXPECT_EQ(find_tensor(plan, "row_tokens"), nullptr);
  EXPECT_NE(find_kernel(plan, "activation_backward_quantize"), nullptr);
  EXPECT_NE(find_kernel(plan, "transpose_act"), nullptr);
  EXPECT_NE(find_kernel(plan, "transpose_dh1"), nullptr);
}

// With hardly more than a row for a token, bf16 tokens are more bytes to read than codes of rows.
TEST(DelayedScalingPlan, CastXAgainWhereTokensHaveManyRows) {
  Layer layer = layer_of(Recipe::kFp8Delayed);
  const auto transposes_x = [&](std::string_view rows) {
    const Plan plan = plan_of(layer);
    const KernelPlan* kernel = find_kernel(plan, "permute_transpose_x");
    if (kernel == nullptr) kernel = find_kernel(plan, "transpose_x");
    return touches(*kernel, rows);
  };
  EXPECT_TRUE(transposes_x("x"));
  // A row of x is zeros if its probability is 0; a row of a gradient is not.
  const Plan plan = plan_of(layer);
  const auto zeroes_rows = [&](std::string_view name) {
    return std::get<CastTransposeSpec>(find_kernel(plan, name)->spec).zeroes_rows;
  };
  EXPECT_TRUE(zeroes_rows("permute_transpose_x"));
  EXPECT_FALSE(zeroes_rows("quantize_permute_transpose_grad"));
  layer.top_k = 2;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  EXPECT_TRUE(transposes_x("permuted_q"));
}

// A state keeps its bits if nobody wants dh1: what is not cast is not recorded.
TEST(DelayedScalingPlan, RecordNoGradientThatIsNotCast) {
  Layer layer = layer_of(Recipe::kFp8Delayed);
  layer.gradients = {Gradient::kDw2, Gradient::kDprobs};
  const Plan plan = plan_of(layer);
  const KernelPlan& kernel = *find_kernel(plan, "activation_backward_quantize_transpose");
  EXPECT_EQ(std::get<GatedGradientSpec>(kernel.spec).amax, AmaxColumns{});
  EXPECT_FALSE(writes(kernel, "fc1_grad_amax_history"));
  EXPECT_FALSE(touches(kernel, "dh1_scale"));
}

TEST(DelayedScalingPlan, BeginWithHistoriesOfZerosAndScalesOfOnes) {
  int states = 0;
  for (const TensorPlan& tensor : plan_of(layer_of(Recipe::kFp8Delayed)).tensors) {
    const bool is_state = tensor.role == TensorRole::kState;
    states += is_state ? 1 : 0;
    EXPECT_EQ(tensor.first_value, is_state && tensor.name.ends_with("_scale") ? 1.0f : 0.0f)
        << tensor.name;
  }
  EXPECT_EQ(states, 8);
}

TEST(DelayedScalingPlan, RecordEachOperandInItsColumnsOfTheState) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Delayed));
  struct Wanted {
    std::string_view kernel, state;
    AmaxColumns columns;
  };
  for (const Wanted& wanted : {Wanted{"quantize_permute_pad", "fc1_amax_history", {3, 0}},
                               Wanted{"activation_quantize", "fc2_amax_history", {3, 0}}}) {
    const KernelPlan& kernel = *find_kernel(plan, wanted.kernel);
    EXPECT_EQ(std::get<RowChainSpec>(kernel.spec).amax, wanted.columns) << wanted.kernel;
    EXPECT_TRUE(writes(kernel, wanted.state)) << wanted.kernel;
  }
  const KernelPlan& gradient = *find_kernel(plan, "activation_backward_quantize_transpose");
  EXPECT_EQ(std::get<GatedGradientSpec>(gradient.spec).amax, (AmaxColumns{2, 0}));
  EXPECT_TRUE(writes(gradient, "fc1_grad_amax_history"));
  const KernelPlan& dy = *find_kernel(plan, "quantize_permute_transpose_grad");
  EXPECT_EQ(std::get<CastTransposeSpec>(dy.spec).amax, (AmaxColumns{2, 0}));
  EXPECT_TRUE(writes(dy, "fc2_grad_amax_history"));
  for (const std::string_view name : {"quantize_w1", "quantize_w2"}) {
    const KernelPlan& kernel = *find_kernel(plan, name);
    EXPECT_EQ(std::get<TileChainSpec>(kernel.spec).amax, (AmaxColumns{3, 1})) << name;
  }
}

// What backward computes again has been recorded, and has the scales of the forward pass.
TEST(DelayedScalingPlan, RecordNothingThatIsRecomputed) {
  Layer layer = layer_of(Recipe::kFp8Delayed);
  layer.recompute = Recompute::kMoeExpert;
  for (const bool fuses : {true, false}) {
    layer.fuse_activation = layer.fuse_activation_transpose = layer.fuse_transpose = fuses;
    const Plan plan = plan_of(layer);
    for (const KernelPlan& kernel : plan.kernels) {
      if (kernel.phase != "backward") continue;
      EXPECT_FALSE(touches(kernel, "fc1_amax_history")) << kernel.operation;
      EXPECT_FALSE(touches(kernel, "fc2_amax_history")) << kernel.operation;
      EXPECT_FALSE(touches(kernel, "fc2_scale")) << kernel.operation;
    }
    EXPECT_EQ(find_tensor(plan, "act_scale")->role, TensorRole::kSaved);
  }
}

TEST(DelayedScalingPlan, CastNothingForTheStateAlone) {
  Layer layer = layer_of(Recipe::kFp8Delayed);
  layer.gradients = {Gradient::kDw2};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(find_kernel(plan, "activation_backward_quantize"), nullptr);
  EXPECT_EQ(find_tensor(plan, "dh1_q"), nullptr);
  layer.gradients = {Gradient::kDprobs};
  EXPECT_FALSE(touches(*find_kernel(plan_of(layer), "activation_dprobs"), "fc1_grad_amax_history"));
}

}  // namespace
}  // namespace moejit::compiler
