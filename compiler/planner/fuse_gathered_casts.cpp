// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the format in which an operation of backward casts rows of tokens and permutes them, with
// a scale for 128 columns; null for other operations.
const Format* format_of_rows(const Operation& operation) {
  const auto* const permute = kind_of<PermutePad>(operation);
  if (permute == nullptr || operation.phase != Phase::kBackward || !permute->quantize ||
      permute->quantize->blocks_per_scale != 1)
    return nullptr;
  const Format& format = permute->quantize->format;
  return format.scale == ScaleOf::k1x128 && has_scales(format) ? &format : nullptr;
}

// Returns whether an operation casts rows of the same tokens by columns, by the same rule.
bool casts_columns(const Operation& operation, const Operation& rows) {
  const auto* const cast = kind_of<QuantizeColumns>(operation);
  if (cast == nullptr || operation.phase != rows.phase || cast->source == RowSource::kInOrder ||
      read_of(operation, "input").tensor != read_of(rows, "input").tensor)
    return false;
  const Format& format = *format_of_rows(rows);
  return cast->format.scale == ScaleOf::k128x1 && cast->format.dtype == format.dtype &&
         cast->format.rule == format.rule && cast->format.epsilon == format.epsilon;
}

// Returns an operation that does what both do.
Operation joined(const Operation& rows, const Operation& columns) {
  const auto& cast = *kind_of<QuantizeColumns>(columns);
  Operation both{.name = "quantize_permute_columns_grad",
                 .kind = CastTranspose{.local_experts = cast.local_experts,
                                       .columns = cast.columns,
                                       .format = *format_of_rows(rows),
                                       .zeroes_rows = cast.source == RowSource::kGathered},
                 .reads = columns.reads,
                 .writes = {write_of(rows, "output"), write_of(columns, "output")},
                 .phase = rows.phase};
  both.writes.front().is_optional = false;
  both.writes.back().role = "output_colwise";
  return both;
}

}  // namespace

void fuse_gathered_casts(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  std::vector<Operation>& operations = graph.operations;
  const auto rows = std::ranges::find_if(operations, [](const Operation& operation) {
    return format_of_rows(operation) != nullptr && find_write(operation, "output") != nullptr;
  });
  if (rows == operations.end()) return;
  const auto columns = std::find_if(rows, operations.end(), [&](const Operation& operation) {
    return casts_columns(operation, *rows);
  });
  if (columns == operations.end()) return;
  if (!has_pads_at_the_end_of_tiles(layer)) {
    reasons.push_back(fmt::format(
        "the casts of dy by rows and by columns stay apart: groups aligned to {} rows have pad "
        "rows in tiles without others",
        layer.splits_alignment));
    return;
  }
  *rows = joined(*rows, *columns);
  operations.erase(columns);
  reasons.push_back(fmt::format(
      "dy [T, {}] is cast by rows and by columns in one kernel, gathered once: a tile of 128 rows "
      "and 128 columns has all that either scale follows from",
      layer.hidden));
}

}  // namespace moejit::compiler
