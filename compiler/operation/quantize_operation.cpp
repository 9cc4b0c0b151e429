// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"

namespace moejit::compiler {

Result<OperationParts> parts_of(const QuantizeOperation& operation, const PlanContext& context) {
  const Dim rows{"T", operation.max_tokens}, columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {rows, columns});
  parts.write_rows("output", RowFormat::kFp8, rows, columns);
  return std::move(parts).make(
      QuantizeRows{.columns = static_cast<int32_t>(operation.columns),
                   .format = operation.recipe.tokens,
                   .blocks_per_scale = static_cast<int32_t>(operation.scale_sharing_k),
                   .reason = "one power-of-two scale for a row and 128 columns"},
      {.max_tokens = operation.max_tokens}, context);
}

Result<OperationParts> parts_of(const QuantizeWeightsOperation& operation,
                                const PlanContext& context) {
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

}  // namespace moejit::compiler
