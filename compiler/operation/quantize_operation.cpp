// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Quantizes rows to E2M1 below one scale of all rows.
Result<OperationParts> rows_on_two_levels(const QuantizeOperation& operation,
                                          const PlanContext& context) {
  const Dim rows{"T", operation.max_tokens}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {rows, columns});
  parts.read("expert_scales", DType::kF32, {fixed(1)});
  parts.write(two_level_rows("output", rows, columns));
  return std::move(parts).make(CastBlocks{.columns = static_cast<int32_t>(operation.columns),
                                          .format = codes_of(operation.recipe.tokens)},
                               {.max_tokens = operation.max_tokens}, context);
}

}  // namespace

Result<OperationParts> parts_of(const QuantizeOperation& operation, const PlanContext& context) {
  if (has_two_levels(operation.recipe.tokens)) return rows_on_two_levels(operation, context);
  const Dim rows{"T", operation.max_tokens}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {rows, columns});
  const Format& format = operation.recipe.tokens;
  parts.write_rows("output", RowFormat::kFp8, rows, columns, format);
  return std::move(parts).make(
      QuantizeRows{
          .columns = static_cast<int32_t>(operation.columns),
          .format = codes_of(format),
          .blocks_per_scale = static_cast<int32_t>(operation.scale_sharing_k),
          .reason = format.scale == ScaleOf::k1x32 ? "one E8M0 scale for a row and 32 columns"
                    : has_row_scale(format) ? "one power-of-two scale for a row, which is read once"
                                            : "one power-of-two scale for a row and 128 columns"},
      {.max_tokens = operation.max_tokens}, context);
}

namespace {

// Quantizes matrices with a scale for 32 elements along the contraction, or for tiles of 16x16. The
// contraction goes by rows in fprop and by columns in dgrad.
Result<OperationParts> weights_in_groups(const QuantizeWeightsOperation& operation,
                                         const PlanContext& context) {
  const bool has_levels = has_two_levels(operation.recipe.weights);
  const int64_t group = has_levels ? 16 : 32;
  if (operation.rows % group != 0 || operation.sections != 1 || operation.scale_sharing_k != 1)
    return fail(Stage::kPlan, ErrorCode::kUnsupported,
                fmt::format("quantize_weights: got {} rows in {} sections with scale_sharing_k {}, "
                            "wanted a multiple of {} in one section with scale_sharing_k 1",
                            operation.rows, operation.sections, operation.scale_sharing_k, group),
                fmt::format("the groups of {} of the recipe {} run over gate and up as they lie, "
                            "and share no scales",
                            group, operation.recipe.name));
  const Dim e{"E", operation.local_experts}, rows{"rows", operation.rows};
  const Dim columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {e, rows, columns});
  if (has_levels) {
    parts.read("expert_scales", DType::kF32, {e});
    parts.write(two_level_rows("output", rows, columns, {e}));
    if (operation.colwise) parts.write(two_level_columns("output_colwise", rows, columns, {e}));
  } else {
    parts.write({.role = "output",
                 .shape = {e, rows, columns},
                 .scales_shape = {e, rows, groups_of(columns)},
                 .scales = Layout::kScalesGroups,
                 .scales_dtype = DType::kF8E8M0});
  }
  if (operation.colwise && !has_levels)
    parts.write({.role = "output_colwise",
                 .shape = {e, rows, columns},
                 .scales_shape = {e, {"rows/32", operation.rows / 32}, columns},
                 .scales = Layout::kScalesGroups,
                 .scales_dtype = DType::kF8E8M0});
  parts.read_optional("skip", DType::kU32, {fixed(1)});
  return std::move(parts).make(
      CastBlocks{.local_experts = static_cast<int32_t>(operation.local_experts),
                 .matrix_rows = static_cast<int32_t>(operation.rows),
                 .columns = static_cast<int32_t>(operation.columns),
                 .format = codes_of(operation.recipe.weights)},
      {.groups = static_cast<int32_t>(operation.local_experts)}, context);
}

}  // namespace

Result<OperationParts> parts_of(const QuantizeWeightsOperation& operation,
                                const PlanContext& context) {
  if (operation.recipe.weights.is_recovered) return weights_in_groups(operation, context);
  const int64_t section_rows = operation.rows / operation.sections;
  const int64_t tile_rows = operation.sections * ((section_rows + 127) / 128);
  const Dim e{"E", operation.local_experts}, rows{"rows", operation.rows};
  const Dim columns = columns_of(operation.columns), blocks = blocks_of(columns);
  const Dim row_tiles{"row tiles", tile_rows};
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {e, rows, columns});
  parts.write({.role = "output",
               .shape = {e, rows, columns},
               .scales_shape = {e, row_tiles, blocks},
               .scales = Layout::kScalesTiles});
  if (operation.colwise) {
    // Zeros fill up each of several sections, so that no tile lies in two of them.
    const Dim padded = operation.sections == 1 ? rows : Dim{"rows'", 128 * tile_rows};
    parts.write({.role = "output_colwise",
                 .shape = {e, columns, padded},
                 .scales_shape = {e, blocks, row_tiles},
                 .scales = Layout::kScalesTiles});
  }
  parts.read_optional("skip", DType::kU32, {fixed(1)});
  return std::move(parts).make(
      QuantizeWeights{.local_experts = static_cast<int32_t>(operation.local_experts),
                      .sections = static_cast<int32_t>(operation.sections),
                      .section_rows = static_cast<int32_t>(section_rows),
                      .columns = static_cast<int32_t>(operation.columns),
                      .tiles_per_scale = static_cast<int32_t>(operation.scale_sharing_k),
                      .is_interleaved = operation.gate_up_layout == GateUpLayout::kInterleaved},
      {.groups = static_cast<int32_t>(operation.local_experts)}, context);
}

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
