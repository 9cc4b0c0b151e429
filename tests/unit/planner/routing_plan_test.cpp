// SPDX-License-Identifier: Apache-2.0
// What plans have of the routing: element types, foreign experts, and T of the forward call.
#include "compiler/work.h"
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::compiler {
namespace {

DType dtype_of(const Plan& plan, std::string_view tensor) {
  const TensorPlan* found = find_tensor(plan, tensor);
  EXPECT_NE(found, nullptr) << tensor;
  return found == nullptr ? DType::kU8 : found->dtype;
}

TEST(RoutingPlan, HasTheDtypesOfTheDescription) {
  Layer layer = worst_case_layer();
  const Plan plain = plan_of(layer);
  EXPECT_EQ(dtype_of(plain, "topk_ids"), DType::kI32);
  EXPECT_EQ(dtype_of(plain, "topk_probs"), DType::kF32);
  EXPECT_EQ(dtype_of(plain, "dprobs"), DType::kF32);
  layer.topk_ids_dtype = IndexDtype::kI64;
  layer.topk_probs_dtype = TopkProbsDtype::kBf16;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(dtype_of(plan, "topk_ids"), DType::kI64);
  EXPECT_EQ(dtype_of(plan, "topk_probs"), DType::kBF16);
  EXPECT_EQ(dtype_of(plan, "dprobs"), DType::kBF16);
  EXPECT_EQ(dtype_of(plan, "permuted_probs"), DType::kF32);
  EXPECT_NE(print_plan(plan, false).find("topk_ids                 I64"), std::string::npos)
      << print_plan(plan, false);
}

// Kernels that move no probabilities are the same for both types.
TEST(RoutingPlan, ChangesTheKernelsThatReadOrWriteThem) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = worst_case_layer(recipe);
    const Plan plain = plan_of(layer);
    layer.topk_ids_dtype = IndexDtype::kI64;
    layer.topk_probs_dtype = TopkProbsDtype::kBf16;
    layer.foreign_experts = ForeignExperts::kIgnore;
    const Plan plan = plan_of(layer);
    ASSERT_EQ(plan.kernels.size(), plain.kernels.size());
    std::vector<std::string> changed;
    for (std::size_t i = 0; i < plan.kernels.size(); ++i)
      if (plan.kernels[i].spec != plain.kernels[i].spec)
        changed.push_back(plan.kernels[i].operation);
    const char* const permute = recipe == Recipe::kBf16 ? "permute_pad" : "quantize_permute_pad";
    EXPECT_EQ(changed, (std::vector<std::string>{"route", permute, "unpermute_grad"}));
  }
}

// Returns the training layer for rows in the order of experts.
Layer grouped_layer(const Recipe& recipe) {
  Layer layer = layer_of(recipe);
  layer.input = LayerInput::kGrouped;
  layer.top_k = 1;
  layer.splits_alignment = least_splits_alignment(recipe, true);
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

TEST(GroupedInput, LeavesRowsAtTheirPlacesWhereNoGroupIsPadded) {
  const Plan plan = plan_of(grouped_layer(Recipe::kFp8Flow));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"quantize", "split_rows", "gemm_fc1_activation_quantize", "gemm_fc2"}));
  EXPECT_EQ(operations_of(plan, "backward").back(), "sum_dprobs");
  for (const KernelPlan& kernel : plan.kernels)
    EXPECT_EQ(kernel.operation.find("permute"), std::string::npos) << kernel.operation;
  for (const std::string_view gone : {"topk_ids", "topk_probs", "permuted_q", "h2", "dx_permuted"})
    EXPECT_EQ(find_tensor(plan, gone), nullptr) << gone;
  for (const std::string_view name : {"probs", "dprobs"})
    EXPECT_EQ(find_tensor(plan, name)->shape.size(), 1U) << name;
}

// Wgrad quantizes these two anew from bf16 rows: the callers' own.
TEST(GroupedInput, ReadsTheCallersRowsInBackward) {
  for (const Recipe& recipe : {Recipe::kBf16, Recipe::kFp8Blockwise, Recipe::kFp8Rowwise}) {
    const Plan plan = plan_of(grouped_layer(recipe));
    EXPECT_TRUE(touches_in(plan, "backward", *find_tensor(plan, "x")));
    EXPECT_EQ(find_tensor(plan, "permuted"), nullptr);
  }
}

// Rows that are cast with their expert's scale, and rows of aligned groups, are moved.
TEST(GroupedInput, MovesRowsWhereAKernelDoesSoAnyway) {
  const Plan cast = plan_of(grouped_layer(Recipe::kFp8Current));
  EXPECT_NE(find_tensor(cast, "permuted_q"), nullptr);
  EXPECT_EQ(find_tensor(cast, "h2"), nullptr);
  Layer layer = grouped_layer(Recipe::kFp8Flow);
  layer.splits_alignment = 128;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const Plan aligned = plan_of(layer);
  EXPECT_NE(find_tensor(aligned, "h2"), nullptr);
  EXPECT_EQ(find_tensor(aligned, "topk_ids"), nullptr);
}

// Without a permuted copy the weights half reads rows of dy itself.
TEST(GroupedInput, MakesAllGradientsOfWeightsInTheirHalf) {
  for (const Recipe& recipe : {Recipe::kBf16, Recipe::kFp8Flow}) {
    Layer layer = grouped_layer(recipe);
    layer.backward_halves = layer.biases = true;
    const Plan plan = plan_of(layer);
    for (const std::string_view name : {"dw1", "dw2", "db1", "db2"}) {
      EXPECT_FALSE(touches_in(plan, "backward_data", *find_tensor(plan, name))) << name;
      EXPECT_TRUE(touches_in(plan, "backward_weights", *find_tensor(plan, name))) << name;
    }
    EXPECT_EQ(touches_in(plan, "backward_weights", *find_tensor(plan, "dy")),
              recipe == Recipe::kBf16);
  }
}

TEST(GroupedInput, MovesFewerBytesThanTokensWithOneChoice) {
  Layer layer = grouped_layer(Recipe::kFp8Flow);
  layer.max_tokens = layer.max_permuted_rows = 32768;
  Layer tokens = layer;
  tokens.input = LayerInput::kTokens;
  const auto bytes_of = [](const Layer& one) {
    int64_t bytes = 0;
    const Plan plan = plan_of(one);
    for (const KernelPlan& kernel : plan.kernels)
      if (kernel.gradient_mode != "add")
        bytes +=
            count_work(kernel,
                       {.tokens = 32768, .routed = 32768, .padded = 32768, .routed_tokens = 32768})
                .min_bytes;
    return bytes;
  };
  EXPECT_GE(bytes_of(tokens) - bytes_of(layer), int64_t{1700} << 20);
}

// At the beginning of the saved block, wherever T puts the others.
TEST(RoutingPlan, SavesTokensFirstForEveryKernelOfTheBackwardPass) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = worst_case_layer(recipe);
    layer.recompute = Recompute::kMoeExpert;
    const Plan plan = plan_of(layer);
    const TensorPlan* saved = find_tensor(plan, "saved_tokens");
    ASSERT_NE(saved, nullptr);
    EXPECT_EQ(saved->dtype, DType::kI64);
    EXPECT_EQ(saved->bytes, 8);
    EXPECT_EQ(saved->role, TensorRole::kSaved);
    EXPECT_EQ(saved->saved_offset, 0);
    for (const KernelPlan& kernel : plan.kernels) {
      const bool is_backward = kernel.phase == "backward";
      EXPECT_EQ(touches(kernel, "saved_tokens"), is_backward || kernel.operation == "route");
      EXPECT_EQ(touches(kernel, "status"), is_backward || kernel.operation == "route");
    }
  }
}

TEST(RoutingPlan, LetsBackwardCallsLeaveTheStatusOut) {
  const Plan plan = plan_of(worst_case_layer());
  const TensorPlan& status = *find_tensor(plan, "status");
  EXPECT_FALSE(status.is_optional);
  EXPECT_TRUE(status.is_optional_in_backward);
  const auto is_optional = [&](std::string_view call, std::string_view name) {
    for (const CallTensor& tensor : plan.calls[find_call(plan, call).value()].tensors)
      if (plan.tensors[tensor.slot].name == name) return tensor.is_optional;
    ADD_FAILURE() << call << " does not take " << name;
    return false;
  };
  EXPECT_FALSE(is_optional("forward", "status"));
  EXPECT_TRUE(is_optional("backward", "status"));
  EXPECT_FALSE(is_optional("backward", "dy"));
}

TEST(RoutingPlan, SavesNothingWithoutABackwardPass) {
  const Plan plan = plan_of(dsv3_like_layer());
  EXPECT_EQ(find_tensor(plan, "saved_tokens"), nullptr);
  EXPECT_FALSE(find_tensor(plan, "status")->is_optional_in_backward);
}

}  // namespace
}  // namespace moejit::compiler
