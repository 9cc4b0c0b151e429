// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/planner_steps.h"

namespace moejit::compiler {
namespace {

// Returns the dimension of gate and up together, or of up alone.
Dim of_sections(const Activation& activation, const Dim& one) {
  return has_gate(activation) ? Dim{"2" + one.symbol, 2 * one.value} : one;
}

// Adds the tensors that both the activation and its gradient read, and the gradient's own.
void read_inputs(PartsBuilder& parts, const ActivationOperation& operation, const Dim& p,
                 const Dim& i) {
  parts.read("input", DType::kBF16, {p, of_sections(operation.activation, i)});
  if (operation.is_gradient) parts.read("gradient", DType::kBF16, {p, i});
  parts.read("probs", DType::kF32, {p});
  read_groups(parts, operation.local_experts);
}

bool is_fp8(const ActivationOperation& operation) { return operation.format == RowFormat::kFp8; }

ActivationBackward backward_kind(const ActivationOperation& operation, int64_t pitch) {
  return {.local_experts = static_cast<int32_t>(operation.local_experts),
          .columns = static_cast<int32_t>(operation.intermediate),
          .pitch = static_cast<int32_t>(pitch),
          .activation = operation.activation,
          .format = is_fp8(operation) ? codes_of(operation.recipe.gradients) : Format{},
          .is_interleaved = operation.gate_up_layout == GateUpLayout::kInterleaved};
}

Activate forward_kind(const ActivationOperation& operation) {
  return {.local_experts = static_cast<int32_t>(operation.local_experts),
          .columns = static_cast<int32_t>(operation.intermediate),
          .activation = operation.activation,
          .format = is_fp8(operation) ? codes_of(operation.recipe.activations) : Format{},
          .blocks_per_scale = static_cast<int32_t>(operation.scale_sharing_k),
          .is_interleaved = operation.gate_up_layout == GateUpLayout::kInterleaved};
}

// Returns the quantized gradients, gate and up each on its own.
PartsBuilder::Scaled scaled_gradients(const ActivationOperation& operation, const Dim& p,
                                      const Dim& half) {
  PartsBuilder::Scaled rows = scaled_rows("output", p, half, operation.recipe.gradients);
  rows.shape.back() = of_sections(operation.activation, half);
  const Dim i{"I", operation.intermediate};
  const bool has_groups = rows.scales == Layout::kScalesGroups;
  rows.scales_shape.back() =
      of_sections(operation.activation, has_groups ? groups_of(i) : blocks_of(i));
  return rows;
}

}  // namespace

Result<OperationParts> parts_of(const ActivationOperation& operation, const PlanContext& context) {
  const Dim p{"P", operation.max_permuted_rows}, i{"I", operation.intermediate};
  const CallBounds bounds = bounds_of_rows(operation.max_permuted_rows, operation.local_experts);
  PartsBuilder parts;
  read_inputs(parts, operation, p, i);
  if (!operation.is_gradient) {
    parts.write_rows("output", operation.format, p, i, operation.recipe.activations);
    return std::move(parts).make(forward_kind(operation), bounds, context);
  }
  const Activation& activation = operation.activation;
  const Dim blocks = blocks_of(i);
  // No scale block may lie in both gate and up, because dgrad contracts over both.
  const bool has_row_scales = is_fp8(operation) && has_row_scale(operation.recipe.gradients);
  const bool is_padded =
      is_fp8(operation) && !has_row_scales && has_gate(activation) && i.value % 128 != 0;
  const Dim half = is_padded ? Dim{"I'", 128 * blocks.value} : i;
  if (has_row_scales)
    parts.write_rows("output", operation.format, p, of_sections(activation, i),
                     operation.recipe.gradients);
  else if (is_fp8(operation))
    parts.write(scaled_gradients(operation, p, half));
  else
    parts.write("output", DType::kBF16, {p, of_sections(activation, half)});
  if (operation.dprobs) parts.write("output_dprobs", DType::kF32, {p, blocks});
  return std::move(parts).make(backward_kind(operation, half.value), bounds, context);
}

}  // namespace moejit::compiler
