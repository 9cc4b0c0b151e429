// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/planner_steps.h"

namespace moejit::compiler {
namespace {

ColumnGroups column_groups(int64_t local_experts, int64_t columns) {
  return {.local_experts = static_cast<int32_t>(local_experts),
          .columns = static_cast<int32_t>(columns)};
}

}  // namespace

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

namespace {

// Returns groups of 32 rows.
Dim row_groups(const Dim& rows) { return {"ceil(P/32)", (rows.value + 31) / 32}; }

// Returns bounds of experts' rows that begin where groups of 32 or 16 rows do.
CallBounds bounds_in_groups(int64_t rows, int64_t local_experts, const Recipe& recipe) {
  return bounds_of_rows(rows, local_experts, has_two_levels(recipe.wgrad_operands) ? 16 : 32);
}

// Quantizes rows with a scale for 32 tokens of a column, which stay where they are, or for 16
// tokens, which are transposed. If wanted, it also quantizes with a scale for as many columns of a
// row.
Result<OperationParts> columns_in_groups(const QuantizeColumnsOperation& operation,
                                         const PlanContext& context) {
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {p, columns});
  read_groups(parts, operation.local_experts);
  if (has_two_levels(operation.recipe.wgrad_operands)) {
    parts.read("expert_scales", DType::kF32, {{"E", operation.local_experts}});
    if (operation.rowwise) parts.write(two_level_rows("output", p, columns));
    parts.write(two_level_columns("output_colwise", p, columns));
  } else {
    if (operation.rowwise)
      parts.write(scaled_rows("output", p, columns, operation.recipe.gradients));
    parts.write({.role = "output_colwise",
                 .shape = {p, columns},
                 .scales_shape = {row_groups(p), columns},
                 .scales = Layout::kScalesGroups,
                 .scales_dtype = DType::kF8E8M0});
  }
  return std::move(parts).make(
      CastBlocks{.local_experts = static_cast<int32_t>(operation.local_experts),
                 .columns = static_cast<int32_t>(operation.columns),
                 .format = codes_of(operation.recipe.wgrad_operands)},
      bounds_in_groups(operation.max_permuted_rows, operation.local_experts, operation.recipe),
      context);
}

}  // namespace

Result<OperationParts> parts_of(const ScaleColumnsOperation& operation,
                                const PlanContext& context) {
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {p, columns});
  read_groups(parts, operation.local_experts);
  parts.write("output_scale_inv", DType::kF32, {{"E", operation.local_experts}, columns});
  return std::move(parts).make(
      ScaleColumns{.groups = column_groups(operation.local_experts, operation.columns),
                   .format = Recipe::kFp8Rowwise.wgrad_operands},
      bounds_of_rows(operation.max_permuted_rows, operation.local_experts), context);
}

Result<OperationParts> parts_of(const QuantizeColumnsOperation& operation,
                                const PlanContext& context) {
  if (operation.recipe.wgrad_operands.is_recovered) return columns_in_groups(operation, context);
  const CallBounds bounds = bounds_of_rows(operation.max_permuted_rows, operation.local_experts);
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  const Dim column_blocks{"C/128", gradient_columns(bounds) / 128};
  const std::vector<Dim> shape = {column_blocks, columns, fixed(128)};
  const Format& format = operation.recipe.wgrad_operands;
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {p, columns});
  if (format.scale == ScaleOf::kColumn)
    parts.read("input_scale_inv", DType::kF32, {{"E", operation.local_experts}, columns});
  read_groups(parts, operation.local_experts);
  parts.read("output_offs", DType::kI32, {{"E+1", operation.local_experts + 1}});
  if (format.scale == ScaleOf::kColumn) {
    parts.write("output", format.dtype, shape);
    return std::move(parts).make(
        CastColumns{.groups = column_groups(operation.local_experts, operation.columns)}, bounds,
        context);
  }
  parts.write({.role = "output",
               .shape = shape,
               .scales_shape = {column_blocks, columns},
               .scales = Layout::kScalesColumns});
  return std::move(parts).make(
      QuantizeColumns{.local_experts = static_cast<int32_t>(operation.local_experts),
                      .columns = static_cast<int32_t>(operation.columns),
                      .format = format},
      bounds, context);
}

Result<OperationParts> parts_of(const SwizzleScalesOperation& operation,
                                const PlanContext& /*context*/) {
  const CallBounds bounds =
      bounds_in_groups(operation.max_permuted_rows, operation.local_experts, operation.recipe);
  const bool has_levels = has_two_levels(operation.recipe.wgrad_operands);
  const Dim p{"P", operation.max_permuted_rows}, columns = columns_of(operation.columns);
  const Dim column_blocks{"C/128", gradient_columns(bounds) / 128};
  PartsBuilder parts;
  const DType dtype = has_levels ? DType::kF8E4M3 : DType::kF8E8M0;
  const std::vector<Dim> by_columns = has_levels ? two_level_columns("", p, columns).scales_shape
                                                 : std::vector{row_groups(p), columns};
  const std::vector<Dim> by_rows =
      has_levels ? two_level_rows("", p, columns).scales_shape : std::vector{p, groups_of(columns)};
  parts.read("input", dtype, operation.of_columns ? by_columns : by_rows, Layout::kScalesGroups);
  read_groups(parts, operation.local_experts);
  parts.read("output_offs", DType::kI32, {{"E+1", operation.local_experts + 1}});
  // Groups of 16 have twice as many scales as groups of 32, and so tiles.
  parts.write("output", dtype,
              {column_blocks, blocks_of(columns), fixed(has_levels ? 2 * 512 : 512)},
              Layout::kScalesSwizzled);
  KernelPlan kernel{
      .spec = SwizzleScalesSpec{.of_columns = operation.of_columns,
                                .group = has_levels ? 16 : 32,
                                .local_experts = static_cast<int32_t>(operation.local_experts),
                                .columns = static_cast<int32_t>(operation.columns)},
      .reasons = {"tiles of 128 by 4 that restart at every expert, as Blackwell's GEMMs read them"},
  };
  for (const std::string_view role : {"input", "counts", "offs", "output_offs", "output"})
    kernel.arguments.push_back({std::string(role), std::string(role)});
  complete_kernel(kernel, bounds);
  return std::move(parts).with(std::move(kernel));
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
