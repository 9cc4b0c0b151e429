// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// The fields of an activation and of its gradient.
struct ActivatedRows {
  ExpertRows rows;  // of I columns
  Activation activation;
  Recipe recipe = Recipe::kBf16;  // whose rows the output is
  bool is_interleaved = false;    // whether columns of gate and up alternate

  // Returns the dimension of gate and up together, or of up alone.
  Dim of_sections(const Dim& one) const {
    return has_gate(activation) ? Dim{"2" + one.symbol, 2 * one.value} : one;
  }
};

ActivatedRows activated_rows(OperationDraft& draft, bool quantizes) {
  ActivatedRows all;
  all.rows.e = draft.dim("E", "local_experts", kExpertsRange);
  all.rows.p = draft.dim("P", "max_permuted_rows", kRowsRange);
  all.rows.columns = draft.dim("I", "intermediate", kWidthRange);
  all.activation = draft.activation("activation");
  if (quantizes)
    all.recipe = draft.choice("recipe", row_recipes());
  else
    all.is_interleaved =
        draft.choice("gate_up_layout", kGateUpLayouts) == GateUpLayout::kInterleaved;
  if (all.is_interleaved && !has_gate(all.activation))
    draft.refuse("gate_up_layout", fmt::format("with the activation {}", to_string(all.activation)),
                 "\"concat\"",
                 "the activation has no gate, and columns alternate between gate and up");
  return all;
}

}  // namespace

void describe_activation(OperationDraft& draft, bool quantizes) {
  const ActivatedRows all = activated_rows(draft, quantizes);
  const auto& [e, p, i] = all.rows;
  const int32_t blocks = quantizes ? blocks_per_scale(draft, all.recipe) : 1;
  const Format format = codes_of(all.recipe.activations);
  draft.read("input", DType::kBF16, {p, all.of_sections(i)});
  draft.read("probs", DType::kF32, {p});
  read_groups(draft, e);
  draft.write(scaled_rows("output", {p}, i, format));
  draft.make(Activate{.local_experts = int32_of(e),
                      .columns = int32_of(i),
                      .activation = all.activation,
                      .format = format,
                      .blocks_per_scale = blocks,
                      .is_interleaved = all.is_interleaved},
             all.rows.bounds());
}

void describe_activation_backward(OperationDraft& draft, bool quantizes) {
  const ActivatedRows all = activated_rows(draft, quantizes);
  const auto& [e, p, i] = all.rows;
  const bool has_dprobs = draft.boolean("dprobs", true);
  const Format format = codes_of(all.recipe.gradients);
  // No scale block may lie in both gate and up, because dgrad contracts over both.
  const bool has_blocks = is_quantized(format) && !has_row_scale(format);
  const bool is_padded = has_blocks && has_gate(all.activation) && i.value % 128 != 0;
  const Dim half = is_padded ? Dim{"I'", 128 * blocks_of(i).value} : i;
  ScaledTensor output = scaled_rows("output", {p}, i, format);
  output.shape.back() = all.of_sections(half);
  if (has_blocks) output.scales_shape.back() = all.of_sections(output.scales_shape.back());
  draft.read("input", DType::kBF16, {p, all.of_sections(i)});
  draft.read("gradient", DType::kBF16, {p, i});
  draft.read("probs", DType::kF32, {p});
  read_groups(draft, e);
  draft.write(std::move(output));
  if (has_dprobs) draft.write("output_dprobs", DType::kF32, {p, blocks_of(i)});
  draft.make(ActivationBackward{.local_experts = int32_of(e),
                                .columns = int32_of(i),
                                .pitch = int32_of(half),
                                .activation = all.activation,
                                .format = format,
                                .is_interleaved = all.is_interleaved},
             all.rows.bounds());
}

}  // namespace moejit::compiler
