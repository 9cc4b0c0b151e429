// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/complete_kernel.h"

namespace moejit::compiler {

Result<OperationParts> parts_of(const AmaxRowsOperation& operation, const PlanContext& context) {
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {p, columns});
  read_groups(parts, operation.local_experts);
  parts.write("output", DType::kF32,
              {p, {"ceil(columns/512)", magnitudes_of_row(operation.columns)}});
  return std::move(parts).make(
      RowAmax{.local_experts = static_cast<int32_t>(operation.local_experts),
              .columns = static_cast<int32_t>(operation.columns)},
      bounds_of_rows(operation.max_permuted_rows, operation.local_experts), context);
}

Result<OperationParts> parts_of(const AmaxWeightsOperation& operation, const PlanContext& context) {
  const Dim e{"E", operation.local_experts}, rows{"rows", operation.rows};
  const MatrixAmax amax{.rows = static_cast<int32_t>(operation.rows),
                        .columns = static_cast<int32_t>(operation.columns)};
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {e, rows, columns_of(operation.columns)});
  parts.write("output", DType::kF32, {e, {"ceil(rows*columns/16384)", pieces_of(amax)}});
  parts.read_optional("skip", DType::kU32, {fixed(1)});
  return std::move(parts).make(amax, {.groups = static_cast<int32_t>(operation.local_experts)},
                               context);
}

Result<OperationParts> parts_of(const ScaleExpertsOperation& operation,
                                const PlanContext& context) {
  const bool has_rows = operation.max_permuted_rows > 0;
  const Dim e{"E", operation.local_experts}, magnitudes{"magnitudes", operation.magnitudes};
  PartsBuilder parts;
  parts.read("amax", DType::kF32,
             {has_rows ? Dim{"P", operation.max_permuted_rows} : e, magnitudes});
  if (has_rows) read_groups(parts, operation.local_experts);
  parts.write("scale", DType::kF32, {e});
  parts.write("scale_inv", DType::kF32, {e});
  if (!has_rows) parts.read_optional("skip", DType::kU32, {fixed(1)});
  return std::move(parts).make(
      ExpertScales{.format = {.dtype = operation.dtype, .rule = ScaleRule::kQuotient},
                   .magnitudes = operation.magnitudes},
      has_rows ? bounds_of_rows(operation.max_permuted_rows, operation.local_experts)
               : CallBounds{.groups = static_cast<int32_t>(operation.local_experts)},
      context);
}

}  // namespace moejit::compiler
