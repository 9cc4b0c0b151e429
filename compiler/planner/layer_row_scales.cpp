// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_graph_builder.h"

#include <fmt/core.h>

// Adds what formats need whose scales belong to whole rows or columns. Columns are cast in two
// passes, of which the first one finds their scales.
namespace moejit::compiler {

void LayerGraphBuilder::cast_columns(std::string_view made, std::string_view name,
                                     const ColumnGroups& groups, const Format& format,
                                     std::vector<Port> reads, const Port& starts) {
  const std::string scales = scales_name(name, format);
  append(fmt::format("scale_columns_{}", made), ScaleColumns{.groups = groups, .format = format},
         reads, {optional(port("output_scale_inv", scales))});
  reads.push_back(port("input_scale_inv", scales));
  if (!starts.tensor.empty()) reads.push_back(starts);
  append(fmt::format("quantize_columns_{}", made), CastColumns{.groups = groups}, std::move(reads),
         {optional(port("output", data_name(name, format)))});
}

// Weights are cast twice, by rows for fprop and by columns, which are rows of dgrad's operand.
void LayerGraphBuilder::quantize_weight_rows(std::string_view name, const QuantizeWeights& kind) {
  const ColumnGroups matrices{.local_experts = kind.local_experts,
                              .columns = kind.columns,
                              .sections = kind.sections,
                              .section_rows = kind.section_rows,
                              .is_interleaved = kind.is_interleaved};
  const std::vector<Port> reads = {port("input", name), skip_of_casts()};
  append(fmt::format("quantize_{}", name),
         QuantizeMatrixRows{.matrices = matrices, .format = recipe_.weights}, reads,
         {port("output", name, recipe_.weights)});
  if (!has_backward(layer_) || !has_scales(recipe_.weights_colwise)) return;
  cast_columns(name, fmt::format("{}_colwise", name), matrices, recipe_.weights_colwise, reads, {});
}

}  // namespace moejit::compiler
