// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_graph_builder.h"

#include <fmt/core.h>

// Adds what formats need whose blocks' scales lie below one scale of an expert's rows. A pass over
// bf16 rows finds their largest magnitudes, and a small kernel the experts' scales. Casts by rows
// and by columns have the same experts' scales.
namespace moejit::compiler {

Port LayerGraphBuilder::row_scales(std::string_view name, int32_t columns, const Format& format) {
  if (!writes(scale_name(name))) {
    append(fmt::format("amax_{}", name),
           RowAmax{.local_experts = layer_.local_experts, .columns = columns},
           with_groups({port("input", name)}), {port("output", amax_name(name))});
    find_row_scales(name, format, columns);
  }
  return expert_scales(name);
}

void LayerGraphBuilder::cast_rows(std::string_view name, int32_t columns, const Format& format) {
  std::vector<Port> reads = with_groups({port("input", name)});
  reads.push_back(row_scales(name, columns, format));
  append(fmt::format("quantize_{}", name),
         CastBlocks{.local_experts = layer_.local_experts, .columns = columns, .format = format},
         std::move(reads), {codes("output", name, format)});
}

}  // namespace moejit::compiler
