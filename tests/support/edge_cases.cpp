// SPDX-License-Identifier: Apache-2.0
#include "tests/support/edge_cases.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/support/layer_inputs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace moejit::testing {
namespace {

using reference::enough_rows;
using reference::exact_inputs;
using reference::LayerInputs;
using reference::LayerShape;
using reference::random_inputs;
using reference::RoutingOptions;

constexpr std::uint64_t kSeed = 20;

// The shape and token count of cases that do not test these.
constexpr LayerShape kShape{
    .experts = 4, .top_k = 2, .hidden = 144, .intermediate = 128, .alignment = 16};
constexpr std::int64_t kTokens = 20;

// The shape of cases whose rows have more than a block of 128, the last of which is not full. Each
// shape is a set of kernels to compile, so that there are few.
constexpr LayerShape kRaggedShape{
    .experts = 4, .top_k = 2, .hidden = 272, .intermediate = 144, .alignment = 16};

// One named case. `make` sets everything but the name; a max_rows of 0 means "enough".
struct Recipe {
  std::string name;
  std::function<EdgeCase()> make;
};

EdgeCase with_shape(const LayerShape& shape, std::int64_t tokens,
                    const RoutingOptions& options = {}) {
  return {.shape = shape, .inputs = random_inputs(shape, tokens, kSeed, options)};
}

// Gives each (token, k) the expert `expert_of(i)`, where i counts through [T, K].
EdgeCase with_routing(const LayerShape& shape, std::int64_t tokens,
                      const std::function<std::int64_t(std::int64_t)>& expert_of) {
  EdgeCase result = with_shape(shape, tokens);
  for (std::int64_t i = 0; i < tokens * shape.top_k; ++i) {
    result.inputs.topk_ids[i] = static_cast<std::int32_t>(expert_of(i));
  }
  return result;
}

LayerShape shape_with_experts(std::int64_t experts, std::int64_t top_k) {
  LayerShape shape = kShape;
  shape.experts = experts;
  shape.top_k = top_k;
  return shape;
}

// Gives expert 1 `rows` rows; its neighbors have two and one, and the last expert none.
EdgeCase with_rows(std::int64_t rows) {
  return with_routing(shape_with_experts(4, 1), rows + 3, [rows](std::int64_t i) {
    if (i == 0 || i == rows + 2) return 0;
    return i == 2 ? 2 : 1;
  });
}

// Routes to every expert except those in `empty`.
EdgeCase with_empty_experts(const std::vector<std::int64_t>& empty) {
  std::vector<std::int64_t> used;
  for (std::int64_t expert = 0; expert < kShape.experts; ++expert) {
    if (std::find(empty.begin(), empty.end(), expert) == empty.end()) used.push_back(expert);
  }
  return with_routing(kShape, kTokens, [used](std::int64_t i) {
    return used[i % static_cast<std::int64_t>(used.size())];
  });
}

EdgeCase with_alignment(std::int64_t alignment) {
  LayerShape shape = kShape;
  shape.alignment = alignment;
  return with_shape(shape, kTokens);
}

// Gives the first three experts 22, 21 and 21 rows, which begin at rows 0, 32 and 64.
EdgeCase with_max_rows(std::int64_t max_rows) {
  EdgeCase result = with_routing(kShape, 32, [](std::int64_t i) { return i % 3; });
  result.shape.max_rows = max_rows;
  return result;
}

EdgeCase zero_probability() {
  EdgeCase result = with_shape(kShape, kTokens, {.unrouted_share = 0.0});
  std::vector<float>& probs = result.inputs.topk_probs;
  for (std::size_t i = 0; i < probs.size(); i += 5) probs[i] = 0.0F;
  probs[2] = -0.0F;
  probs[6] = probs[7] = 0.0F;  // both experts of token 3
  return result;
}

EdgeCase bad_ids() {
  EdgeCase result = with_shape(kShape, kTokens);
  std::vector<std::int32_t>& ids = result.inputs.topk_ids;
  ids[0] = -2;
  ids[3] = static_cast<std::int32_t>(kShape.experts);
  ids[4] = std::numeric_limits<std::int32_t>::max();
  ids[9] = std::numeric_limits<std::int32_t>::min();
  return result;
}

EdgeCase special_values() {
  const std::int64_t tokens = 2 * reference::kSpecialBlocks;
  EdgeCase result = with_shape(kRaggedShape, tokens, {.unrouted_share = 0.0});
  result.inputs.x = reference::special_activations(tokens, kRaggedShape.hidden, kSeed);
  return result;
}

// Gives each expert one special kind of value.
EdgeCase special_weights() {
  EdgeCase result = with_shape(kShape, kTokens, {.unrouted_share = 0.0});
  std::vector<std::uint16_t>& w1 = result.inputs.w1;
  std::vector<std::uint16_t>& w2 = result.inputs.w2;
  const std::int64_t w1_size = 2 * kShape.intermediate * kShape.hidden;
  const std::int64_t w2_size = kShape.hidden * kShape.intermediate;
  w1[5] = 0x7FC0;            // expert 0: a NaN in the gate rows
  w2[w2_size + 7] = 0x7F80;  // expert 1: an Inf in w2, its tile loses its scale
  std::fill_n(w1.begin() + 2 * w1_size, w1_size, std::uint16_t{0});  // expert 2: zeros, -0,
  std::fill_n(w2.begin() + 2 * w2_size, w2_size, std::uint16_t{0x8000});
  std::fill_n(w1.begin() + 3 * w1_size, w1_size / 2, std::uint16_t{1});  // expert 3: subnormals
  return result;
}

EdgeCase zero_rows_beside_tiny_rows() {
  EdgeCase result = with_shape(kShape, kTokens, {.unrouted_share = 0.0});
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const std::uint16_t value = token % 2 == 0 ? 0x0000 : 0x2B80;  // 0 or 2^-40
    if (token % 4 == 3) continue;
    std::fill_n(result.inputs.x.begin() + token * kShape.hidden, kShape.hidden, value);
  }
  return result;
}

EdgeCase exact() {
  return {.shape = kRaggedShape, .inputs = exact_inputs(kRaggedShape, 40, kSeed)};
}

EdgeCase many_experts() {
  LayerShape shape = shape_with_experts(160, 6);
  shape.hidden = 32;
  shape.intermediate = 16;
  return with_shape(shape, kTokens);
}

std::vector<Recipe> routing_recipes() {
  std::vector<Recipe> recipes{
      {"no_tokens", [] { return with_shape(kShape, 0); }},
      {"one_token", [] { return with_shape(kShape, 1, {.unrouted_share = 0.0}); }},
      {"empty_first_expert", [] { return with_empty_experts({0}); }},
      {"empty_middle_expert", [] { return with_empty_experts({2}); }},
      {"empty_last_expert", [] { return with_empty_experts({3}); }},
      {"two_empty_experts",
       [] {
         return with_empty_experts({1, 2});
       }},
      {"every_token_unrouted",
       [] { return with_routing(kShape, kTokens, [](auto) { return -1; }); }},
      {"all_to_one_expert",
       [] {
         return with_empty_experts({0, 1, 3});
       }},
      {"zero_probability", zero_probability},
      {"unrouted_ids", [] { return with_shape(kShape, kTokens, {.unrouted_share = 0.5}); }},
      {"bad_ids", bad_ids},
      {"duplicate_experts", [] { return with_shape(kShape, kTokens, {.may_repeat = true}); }},
      {"row_overflow", [] { return with_max_rows(48); }},
      {"row_overflow_in_first_expert", [] { return with_max_rows(16); }},
  };
  for (const std::int64_t rows : {1, 15, 16, 17, 127, 128, 129}) {
    recipes.push_back({"rows_" + std::to_string(rows), [rows] { return with_rows(rows); }});
  }
  return recipes;
}

std::vector<Recipe> shape_recipes() {
  std::vector<Recipe> recipes{
      {"experts_160", many_experts},
      {"top_1", [] { return with_shape(shape_with_experts(4, 1), kTokens); }},
      {"top_all", [] { return with_shape(shape_with_experts(4, 4), kTokens); }},
      {"special_values", special_values},
      {"special_weights", special_weights},
      {"zero_rows_beside_tiny_rows", zero_rows_beside_tiny_rows},
      {"exact", exact},
  };
  // Each width is there once, whichever of the two it is, and each number of experts.
  constexpr LayerShape kShapes[] = {
      {.experts = 7, .top_k = 3, .hidden = 16, .intermediate = 272, .alignment = 16},
      {.experts = 1, .top_k = 1, .hidden = 128, .intermediate = 16, .alignment = 16},
      kRaggedShape};
  for (const LayerShape& shape : kShapes) {
    recipes.push_back({"experts_" + std::to_string(shape.experts) + "_hidden_" +
                           std::to_string(shape.hidden) + "_intermediate_" +
                           std::to_string(shape.intermediate),
                       [shape] { return with_shape(shape, kTokens); }});
  }
  for (const std::int64_t alignment : {1, 16, 128}) {
    recipes.push_back({"alignment_" + std::to_string(alignment),
                       [alignment] { return with_alignment(alignment); }});
  }
  return recipes;
}

std::vector<Recipe> all_recipes() {
  std::vector<Recipe> recipes = routing_recipes();
  for (Recipe& recipe : shape_recipes()) recipes.push_back(std::move(recipe));
  return recipes;
}

}  // namespace

std::vector<std::string> edge_case_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : all_recipes()) names.push_back(recipe.name);
  return names;
}

std::optional<EdgeCase> edge_case(std::string_view name) {
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.name != name) continue;
    EdgeCase result = recipe.make();
    result.name = recipe.name;
    if (result.shape.max_rows == 0) {
      const std::int64_t tokens = std::max<std::int64_t>(result.inputs.tokens, 1);
      result.shape.max_rows = enough_rows(tokens, result.shape);
    }
    return result;
  }
  return std::nullopt;
}

}  // namespace moejit::testing
