// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/complete_kernel.h"

namespace moejit::compiler {

Result<OperationParts> parts_of(const TransposeOperation& operation,
                                const PlanContext& /*context*/) {
  const int64_t most_columns =
      gradient_columns(bounds_of_rows(operation.max_permuted_rows, operation.local_experts));
  MOEJIT_TRY_ASSIGN(KernelPlan kernel,
                    plan_transpose({.format = operation.dtype,
                                    .rule = operation.rule,
                                    .local_experts = static_cast<int32_t>(operation.local_experts),
                                    .columns = static_cast<int32_t>(operation.columns),
                                    .counts_flushed = operation.counts_flushed},
                                   operation.max_permuted_rows, most_columns));
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  const Dim column_blocks{"C/128", most_columns / 128};
  PartsBuilder parts;
  parts.read({.role = "input",
              .shape = {p, columns},
              .scales_shape = {p, blocks_of(columns)},
              .dtype = operation.dtype});
  read_groups(parts, operation.local_experts);
  parts.read("output_offs", DType::kI32, {{"E+1", operation.local_experts + 1}});
  parts.write({.role = "output",
               .shape = {column_blocks, columns, fixed(128)},
               .scales_shape = {blocks_of(columns), column_blocks},
               .scales = Layout::kScalesTiles,
               .dtype = operation.dtype});
  if (operation.counts_flushed) parts.write("flushed", DType::kI64, {fixed(1)});
  parts.write_optional("status", DType::kU32, {fixed(1)});
  return std::move(parts).with(std::move(kernel));
}

Result<OperationParts> parts_of(const QuantizeColumnsOperation& operation,
                                const PlanContext& context) {
  const CallBounds bounds = bounds_of_rows(operation.max_permuted_rows, operation.local_experts);
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  const Dim column_blocks{"C/128", gradient_columns(bounds) / 128};
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {p, columns});
  read_groups(parts, operation.local_experts);
  parts.read("output_offs", DType::kI32, {{"E+1", operation.local_experts + 1}});
  parts.write({.role = "output",
               .shape = {column_blocks, columns, fixed(128)},
               .scales_shape = {column_blocks, columns},
               .scales = Layout::kScalesColumns});
  return std::move(parts).make(
      QuantizeColumns{.local_experts = static_cast<int32_t>(operation.local_experts),
                      .columns = static_cast<int32_t>(operation.columns),
                      .format = Recipe::kFp8Blockwise.wgrad_operands},
      bounds, context);
}

Result<OperationParts> parts_of(const MultiCastTransposeOperation& operation,
                                const PlanContext& /*context*/) {
  MOEJIT_TRY_ASSIGN(KernelPlan kernel, plan_multi_cast_transpose({.input = operation.input_dtype,
                                                                  .output = operation.output_dtype},
                                                                 operation.sizes));
  const Dim n{"N", std::ssize(operation.sizes)};
  PartsBuilder parts;
  parts.read("tensors", DType::kI64, {n, fixed(8)});
  parts.read("tile_ends", DType::kI64, {n});
  parts.read_optional("skip", DType::kU32, {fixed(1)});
  return std::move(parts).with(std::move(kernel));
}

}  // namespace moejit::compiler
