// SPDX-License-Identifier: Apache-2.0
// What plans have of a router: its kernels, and the tensors of calls.
#include "tests/unit/planner/group_layers.h"
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

// The router of DeepSeek-V3 with both losses.
RouterFormula deepseek_router() {
  return {.score = RouterScore::kSigmoid,
          .has_bias = true,
          .groups = 8,
          .groups_kept = 4,
          .normalize = RouterNormalize::kSum,
          .epsilon = 1e-20,
          .scale = 2.5,
          .aux = AuxCounts::kUnbiased,
          .z = true};
}

Layer with_router(Layer layer, const RouterFormula& router = {}) {
  layer.router = router;
  return layer;
}

Layer layer_with_losses() {
  Layer layer = with_router(training_layer(), deepseek_router());
  layer.router->groups_kept = 8;  // of one expert each
  layer.router->group_score = GroupScore::kMax;
  return layer;
}

// The caller's tensors of a call: "x", "y=" is written, "counts+=" is read and written.
std::string tensors_of_call(const Plan& plan, std::string_view name) {
  std::string text;
  for (const CallTensor& tensor : plan.calls[find_call(plan, name).value()].tensors)
    text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", plan.tensors[tensor.slot].name,
                        tensor.access == Access::kRead    ? ""
                        : tensor.access == Access::kWrite ? "="
                                                          : "+=",
                        tensor.is_optional ? "?" : "");
  return text;
}

TEST(RouterPlan, TakesLogitsInThePlaceOfIdsAndProbabilities) {
  Layer layer = with_router(training_layer());
  layer.recipe = Recipe::kBf16;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(tensors_of_call(plan, "forward"),
            "x topk_ids= topk_probs= logits counts+=? w1 w2 y= status+=");
  EXPECT_EQ(tensors_of_call(plan, "backward"),
            "topk_ids logits dlogits= w1 w2 status+=? dy dx= dw1= dw2=");
  EXPECT_EQ(find_tensor(plan, "dprobs")->role, TensorRole::kWorkspace);
  EXPECT_EQ(find_tensor(plan, "logits")->shape, (std::vector<Dim>{{"T", 4096}, {"A", 8}}));
  EXPECT_EQ(find_tensor(plan, "rows_per_expert")->shape, (std::vector<Dim>{{"E", 8}}));
}

TEST(RouterPlan, HasTheTensorsThatTheFormulaNeeds) {
  Layer layer = layer_with_losses();
  layer.router->has_expert_scale = true;
  layer.router->logits_dtype = DType::kBF16;
  const Plan plan = plan_of(layer);
  const std::string forward = tensors_of_call(plan, "forward"),
                    backward = tensors_of_call(plan, "backward");
  for (const std::string_view taken : {"logits", "expert_scale", "router_bias", " counts+=?",
                                       "unbiased_counts+=", "score_sums+=", "z_sum+="})
    EXPECT_NE(forward.find(taken), std::string::npos) << taken << " in " << forward;
  for (const std::string_view taken :
       {"topk_ids ", "logits", "expert_scale", "unbiased_counts ", "aux_coefficient",
        "z_coefficient", "dlogits=", "dexpert_scale="})
    EXPECT_NE(backward.find(taken), std::string::npos) << taken << " in " << backward;
  EXPECT_EQ(backward.find("topk_probs"), std::string::npos) << backward;
  EXPECT_EQ(backward.find(" counts "), std::string::npos) << "the loss counts other choices";
  EXPECT_EQ(find_tensor(plan, "dlogits")->dtype, DType::kBF16);
  layer.router = RouterFormula{.ids = RouterIds::kGiven};
  EXPECT_NE(tensors_of_call(plan_of(layer), "forward").find("topk_ids topk_probs="),
            std::string::npos);
}

// All other kernels are those of a layer whose caller chooses.
TEST(RouterPlan, AddsOneKernelToEachPass) {
  for (Layer layer : training_layers()) {
    Plan chosen = plan_of(layer);
    const Plan plan = plan_of(with_router(layer));
    ASSERT_EQ(plan.kernels.size(), chosen.kernels.size() + 2);
    EXPECT_EQ(operations_of(plan, "forward").front(), "router");
    EXPECT_EQ(operations_of(plan, "backward").back(), "router_backward");
    auto other = chosen.kernels.begin();
    for (const KernelPlan& kernel : plan.kernels) {
      if (kernel.operation.starts_with("router")) continue;
      EXPECT_EQ(kernel.operation, other->operation);
      EXPECT_EQ(kernel.spec, (other++)->spec) << kernel.operation;
    }
    EXPECT_EQ(plan.saved_bytes, chosen.saved_bytes);
  }
}

TEST(RouterPlan, KeepsTheFusionAndTheOverlapsOfFewTokens) {
  Layer layer = with_router(dsv3_like_layer(), deepseek_router());
  layer.max_tokens = 64;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const Plan plan = plan_of(layer);
  const Names forward = operations_of(plan, "forward");
  EXPECT_EQ(forward[0], "router");
  EXPECT_EQ(forward[1], "route_quantize_permute_pad");
  for (const KernelPlan& kernel : plan.kernels)
    EXPECT_EQ(kernel.launch.overlaps, kernel.phase == "forward") << kernel.operation;
}

TEST(RouterPlan, MakesTheGradientOfLogitsInTheDataHalf) {
  Layer layer = with_router(training_layer());
  layer.backward_halves = true;
  const Plan plan = plan_of(layer);
  EXPECT_NE(tensors_of_call(plan, "backward_data").find("dlogits="), std::string::npos);
  EXPECT_EQ(tensors_of_call(plan, "backward_weights").find("logits"), std::string::npos);
  layer.gradients = {Gradient::kDx, Gradient::kDw1};
  EXPECT_EQ(find_kernel(plan_of(layer), "router_backward"), nullptr);
  EXPECT_EQ(find_tensor(plan_of(layer), "dprobs"), nullptr);
}

TEST(RouterPlan, RoutesARanksOwnTokensInAGroup) {
  for (const Transport transport : {Transport::kPeer, Transport::kNccl}) {
    Layer layer = with_router(parsed(with("")));
    layer.passes = {Pass::kForward, Pass::kBackward};
    layer.expert_parallel.transport = transport;
    const Plan plan = plan_of(layer, {.rank = 1});
    EXPECT_EQ(operations_of(plan, "forward").front(), "router");
    EXPECT_EQ(operations_of(plan, "backward").back(), "router_backward");
    const KernelPlan& router = *find_kernel(plan, "router");
    EXPECT_FALSE(router.has_slots);
    EXPECT_EQ(router.bounds.max_tokens, layer.max_tokens);
    EXPECT_EQ(std::get<RouterSpec>(router.spec).experts, layer.experts);
    EXPECT_EQ(find_tensor(plan, "logits")->shape.front(), (Dim{"T", layer.max_tokens}));
    EXPECT_TRUE(writes(router, "group_status_1"));
  }
}

// Rows that the host dispatches are routed on the rank of their tokens, before.
TEST(RouterPlan, RoutesBeforeTheHostDispatches) {
  Layer layer = with_router(dsv3_like_layer());
  layer.dispatch = Dispatch::kFp8;
  layer.dispatch_calls = true;
  const Plan plan = plan_of(layer);
  EXPECT_NE(tensors_of_call(plan, "quantize").find("topk_ids= topk_probs= logits"),
            std::string::npos);
  EXPECT_NE(tensors_of_call(plan, "experts").find("topk_ids topk_probs "), std::string::npos);
  EXPECT_EQ(tensors_of_call(plan, "experts").find("logits"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
