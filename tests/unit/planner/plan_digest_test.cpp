// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/training_layers.h"

#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace moejit::compiler {
namespace {

using Change = std::function<void(Layer&)>;

std::string digest_of(const Layer& layer, const PlanOptions& options = {}) {
  return plan_digest(plan_of(layer, options));
}

TEST(PlanDigest, IsThirtyTwoHexadecimalDigitsInBothFormsOfThePlan) {
  const LayerPlan plan = plan_of(worst_case_layer());
  const std::string digest = plan_digest(plan);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos) << digest;
  EXPECT_NE(print_plan(plan, false).find("\nplan digest " + digest + "\n"), std::string::npos);
  EXPECT_NE(plan_to_json(plan).find("\"plan_digest\": \"" + digest + "\""), std::string::npos);
}

TEST(PlanDigest, IsEqualForEqualLayersOfAnyName) {
  Layer layer = worst_case_layer();
  const std::string digest = digest_of(layer);
  EXPECT_EQ(digest_of(layer), digest);
  layer.name = "another \"name\"";
  EXPECT_EQ(digest_of(layer), digest);
}

TEST(PlanDigest, DiffersWhereAnyFieldDoes) {
  const std::vector<Change> changes = {
      [](Layer&) {},
      [](Layer& layer) { layer.local_experts = 4; },
      [](Layer& layer) { layer.top_k = 4; },
      [](Layer& layer) { layer.hidden = 4096; },
      [](Layer& layer) { layer.intermediate = 1024; },
      [](Layer& layer) { layer.activation = make_activation("geglu").value(); },
      [](Layer& layer) { layer.gate_up_layout = GateUpLayout::kInterleaved; },
      [](Layer& layer) { layer.biases = true; },
      [](Layer& layer) { layer.topk_ids_dtype = TopkIdsDtype::kI64; },
      [](Layer& layer) { layer.topk_probs_dtype = TopkProbsDtype::kBf16; },
      [](Layer& layer) { layer.foreign_experts = ForeignExperts::kIgnore; },
      [](Layer& layer) { layer.recipe = Recipe::kBf16; },
      [](Layer& layer) { layer.scale_sharing_k = 2; },
      [](Layer& layer) { layer.splits_alignment = 256; },
      [](Layer& layer) { layer.max_tokens = 2048; },
      [](Layer& layer) { layer.max_permuted_rows = 8192; },
      [](Layer& layer) { layer.dispatch = Dispatch::kFp8; },
      [](Layer& layer) { layer.passes = {Pass::kForward}; },
      [](Layer& layer) { layer.recompute = Recompute::kMoeExpert; },
      [](Layer& layer) { layer.wgrad_dtype = WgradDtype::kBf16; },
      [](Layer& layer) { layer.fuse_activation = false; },
      [](Layer& layer) { layer.fuse_transpose = false; },
      [](Layer& layer) { layer.fuse_activation_transpose = false; },
  };
  std::set<std::string> digests;
  for (const Change& change : changes) {
    Layer layer = worst_case_layer();
    change(layer);
    digests.insert(digest_of(layer));
  }
  EXPECT_EQ(digests.size(), changes.size());
}

TEST(PlanDigest, DiffersWithTheOptionsAndTheTarget) {
  const Layer layer = worst_case_layer();
  const Target simulator{.kind = TargetKind::kSim, .arch = "host"};
  const std::set<std::string> digests = {
      digest_of(layer), digest_of(layer, {.keep_intermediates = true}),
      digest_of(layer, {.measure_gemms = true}), plan_digest(*plan_layer(layer, simulator))};
  EXPECT_EQ(digests.size(), 4u);
}

// What a description does not tell, and another version of the planner might choose otherwise.
TEST(PlanDigest, DiffersWhereATensorLiesElsewhereOrAKernelIsAnother) {
  const LayerPlan plan = plan_of(worst_case_layer());
  const std::vector<std::function<void(LayerPlan&)>> changes = {
      [](LayerPlan&) {},
      [](LayerPlan& other) { other.tensors.back().workspace_offset += 256; },
      [](LayerPlan& other) { other.tensors.front().dtype = DType::kF32; },
      [](LayerPlan& other) { other.saved_bytes += 256; },
      [](LayerPlan& other) {
        for (KernelPlan& kernel : other.kernels)
          if (auto* route = std::get_if<RouteSpec>(&kernel.spec)) route->warps = 1;
      },
      [](LayerPlan& other) { other.kernels.pop_back(); },
  };
  std::set<std::string> digests;
  for (const auto& change : changes) {
    LayerPlan other = plan;
    change(other);
    digests.insert(plan_digest(other));
  }
  EXPECT_EQ(digests.size(), changes.size());
}

}  // namespace
}  // namespace moejit::compiler
