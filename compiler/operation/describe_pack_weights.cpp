// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the scales of groups of a row, as checkpoints have them.
DType scales_of(PackedFormat format) {
  switch (format) {
    case PackedFormat::kNvfp4: return DType::kF8E4M3;
    case PackedFormat::kInt4: return DType::kF32;
    default: return DType::kF8E8M0;
  }
}

}  // namespace

void describe_pack_weights(OperationDraft& draft) {
  const PackedFormat format = draft.choice(
      "weight_format", std::array{PackedFormat::kMxfp4, PackedFormat::kNvfp4, PackedFormat::kInt4});
  const PackedTile& tile = packed_tile(format);
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  const int32_t sections = draft.int32("sections", {.lowest = 1, .highest = 2}, 1);
  const Dim rows = draft.dim("rows", "rows", rows_of_sections(sections));
  const Dim columns = draft.dim(
      "columns", "columns",
      {.lowest = tile.group, .highest = kColumnsRange.highest, .multiple_of = tile.group});
  const bool is_interleaved = interleaves_sections(draft, sections);
  const Dim row_tiles{"S", sections * ((rows.value / sections + 127) / 128)};
  const Dim tiles{fmt::format("ceil(columns/{})", tile.columns),
                  (columns.value + tile.columns - 1) / tile.columns};
  const std::vector<Dim> groups = {
      e, rows, {fmt::format("columns/{}", tile.group), columns.value / tile.group}};
  draft.read({.role = "input",
              .shape = {e, rows, {"columns/2", columns.value / 2}},
              .scales_shape = groups,
              .scales = Layout::kRowMajor,
              .dtype = format == PackedFormat::kInt4 ? DType::kU8 : DType::kF4E2M1x2,
              .scales_dtype = scales_of(format)});
  const std::vector<Dim> shape = {e, row_tiles, tiles, fixed(tile.bytes)};
  if (format == PackedFormat::kInt4) draft.read("input_zero", DType::kU8, groups);
  if (tile.has_block_scale)
    draft.write({.role = "output",
                 .shape = shape,
                 .scales_shape = {e, row_tiles, tiles},
                 .scales = Layout::kScalesTiles,
                 .dtype = DType::kU8});
  else
    draft.write("output", DType::kU8, shape);
  draft.write("status", DType::kU32, {fixed(1)});
  draft.make(WeightPackSpec{.sections = sections,
                            .section_rows = int32_of(rows) / sections,
                            .columns = int32_of(columns),
                            .is_interleaved = is_interleaved,
                            .format = format},
             {"codes change their places: no value is rounded",
              "a tile in one piece, as a grouped GEMM copies it"},
             {"input", "input_scale_inv", "input_zero", "output", "output_scale_inv", "status"},
             {.groups = int32_of(e)});
}

}  // namespace moejit::compiler
