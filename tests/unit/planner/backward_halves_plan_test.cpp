// SPDX-License-Identifier: Apache-2.0
// Plans of layers whose backward pass may be called in two halves.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <set>
#include <string>

namespace moejit::compiler {
namespace {

using NameSet = std::set<std::string>;

Names operations_of_half(const Plan& plan, std::string_view half) {
  Names names;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.half == half) names.push_back(kernel.operation);
  return names;
}

Layer layer_with_halves() {
  Layer layer = training_layer();
  layer.backward_halves = true;
  return layer;
}

TEST(BackwardHalvesPlan, PutsFirstWhatDxAndDprobsNeed) {
  const Plan plan = plan_of(layer_with_halves());
  EXPECT_EQ(operations_of_half(plan, "data"),
            (std::vector<std::string>{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                                      "activation_backward_quantize_transpose", "gemm_fc1_dgrad",
                                      "unpermute_grad"}));
  EXPECT_EQ(
      operations_of_half(plan, "weights"),
      (std::vector<std::string>{"permute_transpose_grad", "gemm_fc2_wgrad", "gemm_fc2_wgrad_add",
                                "permute_transpose_x", "gemm_fc1_wgrad", "gemm_fc1_wgrad_add"}));
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kDeferred),
            (NameSet{"dy_q", "dy_scale_inv", "act_colwise_q", "act_colwise_scale_inv",
                     "dh1_colwise_q", "dh1_colwise_scale_inv"}));
}

TEST(BackwardHalvesPlan, TransposesInTheWeightsHalfWhereThatIsApart) {
  Layer layer = layer_with_halves();
  layer.fuse_transpose = layer.fuse_activation_transpose = false;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of_half(plan, "data"),
            (std::vector<std::string>{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                                      "activation_backward_quantize", "gemm_fc1_dgrad",
                                      "unpermute_grad"}));
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kDeferred),
            (NameSet{"grad_permuted_q", "grad_permuted_scale_inv", "dh1_q", "dh1_scale_inv"}));
}

// h1 would be twice as large.
TEST(BackwardHalvesPlan, DefersTheActivationThatIsMadeAgain) {
  Layer layer = layer_with_halves();
  layer.recompute = Recompute::kMoeExpert;
  layer.recipe = Recipe::kBf16;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kDeferred),
            (NameSet{"recomputed_act", "grad_permuted", "dh1"}));
  const TensorPlan& of_forward = *find_tensor(plan, "act");
  EXPECT_EQ(of_forward.role, TensorRole::kWorkspace);
  EXPECT_TRUE(touches_in(plan, "forward", of_forward));
  EXPECT_FALSE(touches_in(plan, "backward", of_forward));
}

// The rows of dy are fewer than those of the experts.
TEST(BackwardHalvesPlan, PermutesDyAgainForTheBiasOfFc2) {
  Layer layer = layer_with_halves();
  layer.biases = true;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of_half(plan, "weights").front(), "permute_pad_grad");
  const NameSet deferred = tensors_of_role(plan, TensorRole::kDeferred);
  EXPECT_TRUE(deferred.contains("dy_q"));
  EXPECT_FALSE(deferred.contains("grad_permuted_q"));
  layer.gradients = {Gradient::kDw1, Gradient::kDw2, Gradient::kDb2};  // and not in the data half
  EXPECT_EQ(find_kernel(plan_of(layer), "permute_pad_grad"), nullptr);
}

// Workspace is nobody's between two calls.
TEST(BackwardHalvesPlan, LeavesNothingInTheWorkspaceForTheWeightsHalf) {
  for (Layer layer : training_layers()) {
    layer.backward_halves = true;
    for (const std::vector<Gradient>& subset : subsets_of(all_gradients(layer))) {
      layer.gradients = subset;
      const Plan plan = plan_of(layer);
      SCOPED_TRACE(to_json(layer));
      for (const TensorPlan& tensor : plan.tensors) {
        const bool is_of_both = touches_in(plan, "backward_data", tensor) &&
                                touches_in(plan, "backward_weights", tensor);
        const bool is_of_forward = touches_in(plan, "forward", tensor);
        ASSERT_TRUE(tensor.role != TensorRole::kDeferred || (is_of_both && !is_of_forward))
            << tensor.name;
        if (tensor.role != TensorRole::kWorkspace || !is_of_both) continue;
        ASSERT_TRUE(tensor.name.starts_with("grad_permuted")) << tensor.name;  // made again
        ASSERT_NE(find_kernel(plan, "permute_pad_grad"), nullptr);
      }
    }
  }
}

TEST(BackwardHalvesPlan, ComputesWhatTheWholeComputesAndTakesDyOnce) {
  for (Layer layer : training_layers()) {
    std::vector<std::string> whole = operations_of(plan_of(layer), "backward");
    layer.backward_halves = true;
    const Plan plan = plan_of(layer);
    std::vector<std::string> halves = operations_of(plan, "backward");
    // But for the rows that are permuted again.
    if (operations_of_half(plan, "weights").front() == "permute_pad_grad")
      halves.erase(std::ranges::find(halves, "permute_pad_grad"));
    if (layer.dispatch == Dispatch::kNone || halves.size() == whole.size()) {
      std::ranges::sort(whole);
      std::ranges::sort(halves);
      EXPECT_EQ(halves, whole) << to_json(layer);
    }
    EXPECT_FALSE(touches_in(plan, "backward_weights", *find_tensor(plan, "dy"))) << to_json(layer);
    EXPECT_TRUE(std::ranges::is_sorted(plan.kernels, {}, [](const KernelPlan& kernel) {
      return kernel.half.empty() ? 0 : kernel.half == "data" ? 1 : 2;
    }));
  }
}

TEST(BackwardHalvesPlan, NoDeferredTensorsOverlap) {
  const Plan plan = plan_of(layer_with_halves());
  int64_t end = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    EXPECT_EQ(tensor.deferred_offset >= 0, tensor.role == TensorRole::kDeferred) << tensor.name;
    if (tensor.role != TensorRole::kDeferred) continue;
    EXPECT_GE(tensor.deferred_offset, end) << tensor.name;
    EXPECT_EQ(tensor.deferred_offset % 256, 0) << tensor.name;
    end = tensor.deferred_offset + tensor.bytes;
  }
  EXPECT_GT(end, 0);
  EXPECT_LE(end, plan.deferred_bytes);
  EXPECT_EQ(plan_of(training_layer()).deferred_bytes, 0);
}

TEST(BackwardHalvesPlan, IsPrintedWithItsHalvesAndItsBlock) {
  const Plan plan = plan_of(layer_with_halves());
  const std::string text = print_plan(plan, false);
  EXPECT_NE(text.find("backward data"), std::string::npos);
  EXPECT_NE(text.find("backward weights"), std::string::npos);
  EXPECT_NE(text.find("deferred between the halves of backward"), std::string::npos);
  const std::string json = plan_to_json(plan);
  EXPECT_NE(json.find("\"half\": \"weights\""), std::string::npos);
  EXPECT_NE(json.find("\"deferred_offset\""), std::string::npos);
  EXPECT_EQ(plan_to_json(plan_of(training_layer())).find("\"half\""), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
