// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>
#include <string>

namespace moejit::compiler {
namespace {

// Formats of A and B that a GEMM can have together.
struct OperandFormats {
  ScaleOf a;
  ScaleOf b;
};
constexpr OperandFormats kRowGemms[] = {{ScaleOf::kNone, ScaleOf::kNone},
                                        {ScaleOf::kNone, ScaleOf::kSection},
                                        {ScaleOf::k1x128, ScaleOf::k128x128},
                                        {ScaleOf::kExpert, ScaleOf::kExpert},
                                        {ScaleOf::kRow, ScaleOf::kRow}};

// Returns what shares a scale of a GEMM's operand; recovered values have none.
ScaleOf gemm_scale(const Format& format) {
  return has_scales(format) ? format.scale : ScaleOf::kNone;
}

bool has_row_gemm(const Format& a, const Format& b) {
  for (const OperandFormats& formats : kRowGemms)
    if (formats.a == gemm_scale(a) && formats.b == gemm_scale(b)) return true;
  return false;
}

// Returns whether wgrad's operands can be made. They may be bf16 rows as they are, rows with scales
// of blocks, values quantized anew, or the bytes of rows.
bool has_wgrad(const Recipe& recipe) {
  if (!has_expert_scale(recipe.wgrad_operands)) return true;
  return has_expert_scale(recipe.tokens) && has_expert_scale(recipe.activations) &&
         has_expert_scale(recipe.gradients);
}

// Returns whether the weights can be cast: both orientations by one kernel, or each from values.
bool has_weights(const Recipe& recipe) {
  return !has_scales(recipe.weights_colwise) ||
         has_row_scale(recipe.weights) == has_row_scale(recipe.weights_colwise);
}

// Returns whether scales of rows in this format multiply complete sums of products.
bool has_end_scales(const Format& format) {
  return has_expert_factor(format) || has_row_scale(format);
}

// Returns whether each GEMM of a recipe has a kernel: fprop, dgrad and wgrad.
bool has_kernels(const Recipe& recipe) {
  return recipe.has_kernels && has_row_gemm(recipe.tokens, recipe.weights) &&
         has_row_gemm(recipe.activations, recipe.weights) &&
         has_row_gemm(recipe.gradients, recipe.weights_colwise) && has_weights(recipe) &&
         has_wgrad(recipe);
}

tl::unexpected<Error> refuse(const Layer& layer, const Target& target, std::string_view what,
                             std::string_view got, const std::string& available) {
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("layer \"{}\": {} \"{}\" does not run on target {}", layer.name, what,
                          got, to_string(target)),
              fmt::format("it can run: {}", available));
}

std::string names_of_runnable(bool (*has)(const Recipe&) = has_kernels) {
  std::string names;
  for (const Recipe& recipe : kRecipes)
    if (has_kernels(recipe) && has(recipe))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", recipe.name);
  return names;
}

// Gate and up are joined by the cast of w1, where it reads tiles. GEMMs in bf16 read both.
bool may_be_separate(const Recipe& recipe) {
  return has_weight_tiles(recipe) || has_plain_weights(recipe);
}

Result<void> check_separate_gate_up(const Layer& layer, const Target& target) {
  const std::string_view separate = to_string(GateUpLayout::kSeparate);
  if (!may_be_separate(layer.recipe))
    return refuse(layer, target, fmt::format("recipe {} with gate_up_layout", layer.recipe.name),
                  separate,
                  fmt::format("gate_up_layout \"concat\", or the recipes {}",
                              names_of_runnable(may_be_separate)));
  if (layer.weight_checks)
    return refuse(layer, target, "weight_checks true with gate_up_layout", separate,
                  "weight_checks false, or gate_up_layout \"concat\"");
  return {};
}

}  // namespace

Result<void> check_support(const Layer& layer, const Target& target) {
  const Recipe& recipe = layer.recipe;
  if (!has_kernels(recipe))
    return refuse(layer, target, "recipe", recipe.name, names_of_runnable());
  if (layer.block_size != 128)
    return refuse(layer, target, "block_size", std::to_string(layer.block_size), "128");
  // Rows that were quantized with a scale of their own are permuted by no kernel.
  if (layer.dispatch == Dispatch::kFp8 &&
      (!has_scales(recipe.tokens) || has_end_scales(recipe.tokens)))
    return refuse(layer, target, fmt::format("recipe {} with the dispatch", recipe.name),
                  to_string(layer.dispatch), "dispatch \"none\"");
  // The rank that multiplies gets quantized rows of other ranks' tokens, and has no values of them.
  if (has_backward(layer) && layer.dispatch != Dispatch::kNone &&
      is_cast_from_values(recipe.wgrad_operands))
    return refuse(layer, target,
                  fmt::format("recipe {} with a backward pass and dispatch", recipe.name),
                  to_string(layer.dispatch),
                  "dispatch \"none\", or the forward pass alone: wgrad quantizes x and dy anew, by "
                  "columns, from bf16 values");
  // Biases are added to complete sums before end scales would be applied, and their gradients need
  // the values of rows.
  if (layer.biases && (has_end_scales(recipe.tokens) || has_end_scales(recipe.gradients)))
    return refuse(layer, target, fmt::format("recipe {} with biases", recipe.name), "true",
                  "biases false");
  // Groups of 32 fill the contractions of fc1, of fc2 and of dgrad.
  if (recipe.tokens.scale == ScaleOf::k1x32)
    for (const auto& [name, width] :
         {std::pair{"hidden", layer.hidden}, std::pair{"intermediate", layer.intermediate}})
      if (width % 32 != 0)
        return refuse(layer, target, fmt::format("recipe {} with {}", recipe.name, name),
                      std::to_string(width), "multiples of 32, the elements that share a scale");
  const int32_t least = least_splits_alignment(recipe, has_backward(layer));
  if (layer.splits_alignment % least != 0)
    return refuse(layer, target,
                  fmt::format("recipe {}{} with splits_alignment", recipe.name,
                              has_backward(layer) ? " with a backward pass" : ""),
                  std::to_string(layer.splits_alignment),
                  fmt::format("multiples of {}, the rows that share a scale", least));
  if (is_packed(recipe.weights) && (has_backward(layer) || layer.weight_checks))
    return refuse(layer, target,
                  fmt::format("{} with weight_format",
                              has_backward(layer) ? "a backward pass" : "weight_checks"),
                  to_string(weight_format(layer)), "weight_format \"bf16\"");
  if (has_separate_gate_up(layer)) MOEJIT_TRY(check_separate_gate_up(layer, target));
  // dgrad with bf16 weights takes columns of h1 in the order of w1's rows.
  if (has_backward(layer) && layer.gate_up_layout == GateUpLayout::kInterleaved &&
      has_scales(recipe.weights) != has_scales(recipe.weights_colwise))
    return refuse(layer, target,
                  fmt::format("recipe {} with a backward pass and gate_up_layout", recipe.name),
                  to_string(layer.gate_up_layout), "gate_up_layout \"concat\"");
  return {};
}

}  // namespace moejit::compiler
