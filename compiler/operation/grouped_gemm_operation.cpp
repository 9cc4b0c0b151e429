// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/planner_steps.h"

namespace moejit::compiler {
namespace {

// Adds the scales of A and B, as far as the operands have any.
void add_scales(PartsBuilder& parts, const GroupedGemmOperation& operation, const Dim& p,
                const Dim& e) {
  const Dim k{"k", operation.k}, n{"n", operation.n};
  const int64_t section_n = operation.n / operation.sections;
  switch (operation.scales) {
    case GemmScales::kRowBlock:
      parts.read("a_scale_inv", DType::kF32, {p, blocks_of(k)}, Layout::kScalesCompact);
      parts.read("b_scale_inv", DType::kF32,
                 {e, {"row tiles", operation.sections * ((section_n + 127) / 128)}, blocks_of(k)},
                 Layout::kScalesTiles);
      return;
    case GemmScales::kTensor:
      parts.read("a_scale_inv", DType::kF32, {e});
      parts.read("b_scale_inv", DType::kF32, {e});
      return;
    case GemmScales::kRowColumn:
      parts.read("a_scale_inv", DType::kF32, {p});
      parts.read("b_scale_inv", DType::kF32, {e, n});
      return;
    case GemmScales::kNone: return;
  }
}

DType dtype_of(GradientOutput output) {
  return output == GradientOutput::kBf16 ? DType::kBF16 : DType::kF32;
}

// Adds the scales of A [rows, C] and B [n, C].
void add_scales(PartsBuilder& parts, const ContractionGroupedGemmOperation& operation,
                const Dim& rows, const Dim& n, const Dim& blocks) {
  const Dim e{"E", operation.local_experts};
  switch (operation.scales) {
    case GradientScales::kTile:
      parts.read("a_scale_inv", DType::kF32, {blocks_of(rows), blocks}, Layout::kScalesTiles);
      parts.read("b_scale_inv", DType::kF32, {blocks_of(n), blocks}, Layout::kScalesTiles);
      return;
    case GradientScales::kRow:
      parts.read("a_scale_inv", DType::kF32, {blocks, rows}, Layout::kScalesColumns);
      parts.read("b_scale_inv", DType::kF32, {blocks, n}, Layout::kScalesColumns);
      return;
    case GradientScales::kTensor:
      parts.read("a_scale_inv", DType::kF32, {e});
      parts.read("b_scale_inv", DType::kF32, {e});
      return;
    case GradientScales::kRowColumn:
      parts.read("a_scale_inv", DType::kF32, {e, rows});
      parts.read("b_scale_inv", DType::kF32, {e, n});
      return;
    case GradientScales::kNone: return;
  }
}

}  // namespace

Result<OperationParts> parts_of(const GroupedGemmOperation& operation, const PlanContext& context) {
  const bool is_bf16 = operation.scales == GemmScales::kNone || operation.a_dtype == DType::kBF16;
  const DType operands = is_bf16 ? DType::kBF16 : DType::kF8E4M3;
  const GroupedGemmSpec problem{
      .operands = operands,
      .is_a_e5m2 = operation.a_dtype == DType::kF8E5M2,
      .scales = operation.scales,
      .accumulation = operation.accumulation,
      .b_major = operation.b_major,
      .local_experts = static_cast<int32_t>(operation.local_experts),
      .sections = static_cast<int32_t>(operation.sections),
      .section_n = static_cast<int32_t>(operation.n / operation.sections),
      .k = static_cast<int32_t>(operation.k),
      .blocks_per_promotion = static_cast<int32_t>(operation.scale_sharing_k),
      .bias = operation.bias};
  MOEJIT_TRY_ASSIGN(KernelPlan kernel,
                    plan_grouped_gemm(problem, operation.max_permuted_rows, context.options));
  const Dim p{"P", operation.max_permuted_rows}, e{"E", operation.local_experts};
  const Dim n{"n", operation.n}, k{"k", operation.k};
  PartsBuilder parts;
  parts.read("a", problem.is_a_e5m2 ? operation.a_dtype : operands, {p, k});
  parts.read("b", operands,
             operation.b_major == Major::kMn ? std::vector{e, k, n} : std::vector{e, n, k});
  add_scales(parts, operation, p, e);
  if (operation.bias != GemmBias::kNone) parts.read("bias", DType::kBF16, {e, n});
  if (operation.bias == GemmBias::kColumnsTimesProb) parts.read("probs", DType::kF32, {p});
  read_groups(parts, operation.local_experts);
  parts.write("d", DType::kBF16, {p, n});
  parts.write_optional("elapsed", DType::kI64, {fixed(2)});
  return std::move(parts).with(std::move(kernel));
}

Result<OperationParts> parts_of(const ContractionGroupedGemmOperation& operation,
                                const PlanContext& context) {
  const Dim e{"E", operation.local_experts};
  const Dim rows{"rows", operation.rows}, n{"n", operation.n};
  const Dim columns{"C", operation.max_columns}, blocks{"C/128", operation.max_columns / 128};
  PartsBuilder parts;
  if (operation.scales == GradientScales::kNone || operation.a_dtype == DType::kBF16) {
    parts.read("a", DType::kBF16, {columns, rows});
    parts.read("b", DType::kBF16, {columns, n});
  } else {
    parts.read("a", operation.a_dtype, {blocks, rows, fixed(128)});
    parts.read("b", DType::kF8E4M3, {blocks, n, fixed(128)});
  }
  add_scales(parts, operation, rows, n, blocks);
  read_groups(parts, operation.local_experts);
  parts.write("d", dtype_of(operation.output), {e, rows, n});
  parts.write_optional("elapsed", DType::kI64, {fixed(2)});
  MOEJIT_TRY_ASSIGN(
      KernelPlan kernel,
      plan_contraction_grouped_gemm({.scales = operation.scales,
                                     .output = operation.output,
                                     .accumulation = operation.accumulation,
                                     .is_a_e5m2 = operation.a_dtype == DType::kF8E5M2,
                                     .has_bf16_operands = operation.a_dtype == DType::kBF16,
                                     .local_experts = static_cast<int32_t>(operation.local_experts),
                                     .rows = static_cast<int32_t>(operation.rows),
                                     .n = static_cast<int32_t>(operation.n)},
                                    operation.max_columns, context.options));
  return std::move(parts).with(std::move(kernel));
}

}  // namespace moejit::compiler
