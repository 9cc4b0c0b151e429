// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/layer_schema.h"
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
  const Plan plan = plan_of(worst_case_layer());
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

// A field of a description, and another value of it in a layer of this recipe.
struct Field {
  std::string_view key;
  Change change;
  Recipe recipe = Recipe::kFp8Flow;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"name", [](Layer& layer) { layer.name = "another"; }},
      {"experts", [](Layer& layer) { layer.experts = 16; }},
      {"local_experts", [](Layer& layer) { layer.local_experts = 4; }},
      {"top_k", [](Layer& layer) { layer.top_k = 4; }},
      {"shared", [](Layer& layer) { layer.shared.experts = 1; }},
      {"hidden", [](Layer& layer) { layer.hidden = 4096; }},
      {"intermediate", [](Layer& layer) { layer.intermediate = 1024; }},
      {"activation", [](Layer& layer) { layer.activation = make_activation("geglu").value(); }},
      {"gate_up_layout", [](Layer& layer) { layer.gate_up_layout = GateUpLayout::kInterleaved; }},
      {"biases", [](Layer& layer) { layer.biases = true; }},
      {"dtype", [](Layer& layer) { layer.dtype = "f16"; }},
      {"input", [](Layer& layer) { layer.input = LayerInput::kGrouped; }},
      {"tokens_per_expert_dtype",
       [](Layer& layer) {
         layer.input = LayerInput::kGrouped;
         layer.tokens_per_expert_dtype = IndexDtype::kI64;
       }},
      {"router", [](Layer& layer) { layer.router = RouterFormula{}; }},
      {"topk_ids_dtype", [](Layer& layer) { layer.topk_ids_dtype = IndexDtype::kI64; }},
      {"topk_probs_dtype", [](Layer& layer) { layer.topk_probs_dtype = TopkProbsDtype::kBf16; }},
      {"foreign_experts", [](Layer& layer) { layer.foreign_experts = ForeignExperts::kIgnore; }},
      {"recipe", [](Layer& layer) { layer.recipe = Recipe::kBf16; }},
      {"block_size", [](Layer& layer) { layer.block_size = 64; }},
      {"scale_sharing_k", [](Layer& layer) { layer.scale_sharing_k = 2; }},
      {"weight_format", [](Layer& layer) { layer.recipe.weights = kPackedTiles; }},
      {"power_of_2_scales", [](Layer& layer) { layer.power_of_2_scales = true; },
       Recipe::kFp8Current},
      {"gradient_format",
       [](Layer& layer) { layer.recipe.gradients.dtype = layer.recipe.tokens.dtype; },
       Recipe::kFp8Delayed},
      {"margin", [](Layer& layer) { layer.margin = 1; }, Recipe::kFp8Delayed},
      {"amax_history_len", [](Layer& layer) { layer.amax_history_len = 16; }, Recipe::kFp8Delayed},
      {"amax_compute_algo",
       [](Layer& layer) { layer.amax_compute_algo = AmaxComputeAlgo::kMostRecent; },
       Recipe::kFp8Delayed},
      {"splits_alignment", [](Layer& layer) { layer.splits_alignment = 256; }},
      {"max_tokens", [](Layer& layer) { layer.max_tokens = 2048; }},
      {"max_permuted_rows", [](Layer& layer) { layer.max_permuted_rows = 8192; }},
      {"dispatch", [](Layer& layer) { layer.dispatch = Dispatch::kFp8; }},
      {"dispatch_calls", [](Layer& layer) { layer.dispatch_calls = true; }},
      {"passes", [](Layer& layer) { layer.passes = {Pass::kForward}; }},
      {"gradients", [](Layer& layer) { layer.gradients = {Gradient::kDx}; }},
      {"backward_halves", [](Layer& layer) { layer.backward_halves = true; }},
      {"backward_linears", [](Layer& layer) { layer.backward_linears = true; }},
      {"backward_quantizes_weights", [](Layer& layer) { layer.backward_quantizes_weights = true; }},
      {"weight_checks", [](Layer& layer) { layer.weight_checks = true; }},
      {"recompute", [](Layer& layer) { layer.recompute = Recompute::kMoeExpert; }},
      {"wgrad_dtype", [](Layer& layer) { layer.wgrad_dtype = WgradDtype::kBf16; }},
      {"fuse_wgrad_accumulation", [](Layer& layer) { layer.fuse_wgrad_accumulation = false; }},
      {"fuse_activation", [](Layer& layer) { layer.fuse_activation = false; }},
      {"fuse_transpose", [](Layer& layer) { layer.fuse_transpose = false; }},
      {"fuse_activation_transpose", [](Layer& layer) { layer.fuse_activation_transpose = false; }},
      {"expert_parallel", [](Layer& layer) { layer.expert_parallel.ranks = 2; }},
  };
  return all;
}

// Returns the digest of the plan if its description were this one. The kernels are as they were, so
// that a difference comes from the description.
std::string digest_with(Plan plan, const Layer& layer) {
  plan.layer = layer;
  return plan_digest(plan);
}

// A field that changes no kernel may stay out of the digest: then code that was compiled, and
// blocks that were saved, are not stale after it changed. Such a field belongs to `left_out`, and
// plan_digest() clears it.
TEST(PlanDigest, HasEveryFieldOfADescriptionButTheName) {
  const std::set<std::string_view> left_out = {"name"};
  const Plan plan = plan_of(worst_case_layer());
  for (const Field& field : fields()) {
    const Layer layer = worst_case_layer(field.recipe);
    Layer changed = layer;
    field.change(changed);
    EXPECT_NE(to_json(changed), to_json(layer)) << field.key << ": the test changes nothing";
    EXPECT_EQ(digest_with(plan, changed) == digest_with(plan, layer), left_out.contains(field.key))
        << field.key << (left_out.contains(field.key) ? " is in the digest" : " is not in it");
  }
}

TEST(PlanDigest, KnowsOfEveryField) {
  std::set<std::string_view> known;
  for (const Field& field : fields()) known.insert(field.key);
  for (const std::string_view key : layer_keys())
    EXPECT_TRUE(known.contains(key))
        << key << " is a new field: add it to fields() above, and to left_out if no kernel of a "
        << "plan depends on it";
  EXPECT_EQ(known.size(), layer_keys().size());
}

TEST(PlanDigest, DiffersWithTheOptionsAndTheTarget) {
  const Layer layer = worst_case_layer();
  const Target simulator = simulator_target();
  const std::set<std::string> digests = {
      digest_of(layer), digest_of(layer, {.keep_intermediates = true}),
      digest_of(layer, {.measure_gemms = true}), plan_digest(*plan_layer(layer, simulator))};
  EXPECT_EQ(digests.size(), 4u);
}

// What a description does not tell, and another version of the planner might choose otherwise.
TEST(PlanDigest, DiffersWhereATensorLiesElsewhereOrAKernelIsAnother) {
  const Plan plan = plan_of(worst_case_layer());
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan&) {},
      [](Plan& other) { other.tensors.back().workspace_offset += 256; },
      [](Plan& other) { other.tensors.front().dtype = DType::kF32; },
      [](Plan& other) { other.tensors.back().saved_offset += 256; },
      [](Plan& other) { other.tensors.back().is_optional = !other.tensors.back().is_optional; },
      [](Plan& other) { other.tensors.back().is_optional_in_backward = true; },
      [](Plan& other) { other.tensors.back().role = TensorRole::kSaved; },
      [](Plan& other) { other.tensors.front().shape.front().value += 1; },
      [](Plan& other) { other.workspace_bytes += 256; },
      [](Plan& other) { other.saved_bytes += 256; },
      [](Plan& other) {
        for (KernelPlan& kernel : other.kernels)
          if (auto* route = std::get_if<RouteSpec>(&kernel.spec)) route->warps = 1;
      },
      [](Plan& other) { other.kernels.pop_back(); },
      [](Plan& other) { other.kernels.back().phase = "forward_scales"; },
      [](Plan& other) { other.kernels.back().gradient_mode = "add"; },
      [](Plan& other) {
        auto& arguments = other.kernels.back().arguments;
        std::swap(arguments.at(0).tensor, arguments.at(1).tensor);
      },
      [](Plan& other) {
        for (KernelPlan& kernel : other.kernels)
          if (!kernel.tensor_maps.empty())
            std::swap(kernel.tensor_maps.at(0).tensor, kernel.tensor_maps.at(1).tensor);
      },
  };
  std::set<std::string> digests;
  for (size_t i = 0; i < changes.size(); ++i) {
    Plan other = plan;
    changes[i](other);
    EXPECT_TRUE(digests.insert(plan_digest(other)).second) << "change " << i;
  }
}

}  // namespace
}  // namespace moejit::compiler
