// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"
#include "moejit_device/params/packed_tile.h"

namespace moejit::compiler {

void describe_pack_weights(OperationDraft& draft) {
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  const int32_t sections = draft.int32("sections", {.lowest = 1, .highest = 2}, 1);
  const Dim rows = draft.dim("rows", "rows", rows_of_sections(sections));
  const Dim columns = draft.dim(
      "columns", "columns", {.lowest = 32, .highest = kColumnsRange.highest, .multiple_of = 32});
  const bool is_interleaved = interleaves_sections(draft, sections);
  const Dim row_tiles{"S", sections * ((rows.value / sections + 127) / 128)};
  const std::vector<Dim> tiles = {e, row_tiles, blocks_of(columns)};
  draft.read({.role = "input",
              .shape = {e, rows, {"columns/2", columns.value / 2}},
              .scales_shape = {e, rows, {"columns/32", columns.value / 32}},
              .scales = Layout::kRowMajor,
              .dtype = DType::kF4E2M1x2,
              .scales_dtype = DType::kF8E8M0});
  draft.write({.role = "output",
               .shape = {e, row_tiles, blocks_of(columns), fixed(device::kPackedTileBytes)},
               .scales_shape = tiles,
               .scales = Layout::kScalesTiles,
               .dtype = DType::kU8});
  draft.write("status", DType::kU32, {fixed(1)});
  draft.make(WeightPackSpec{.sections = sections,
                            .section_rows = int32_of(rows) / sections,
                            .columns = int32_of(columns),
                            .is_interleaved = is_interleaved},
             {"codes change their places: no value is rounded",
              "a tile in one piece, as a grouped GEMM copies it"},
             {"input", "input_scale_inv", "output", "output_scale_inv", "status"},
             {.groups = int32_of(e)});
}

}  // namespace moejit::compiler
