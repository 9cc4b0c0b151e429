// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"
#include "compiler/planner/layer_graph_builder.h"

#include <fmt/core.h>

// What the formats need whose scales belong to experts: two passes, of which the first one finds
// the largest magnitudes, and a small kernel between them.
namespace moejit::compiler {

ExpertScales LayerGraphBuilder::expert_scales_of(const Format& format, int64_t magnitudes) const {
  ExpertScales scales{.format = format, .magnitudes = magnitudes};
  if (layer_.power_of_2_scales) scales.format.rule = ScaleRule::kPowerOfTwo;
  return scales;
}

void LayerGraphBuilder::find_row_scales(std::string_view name, const Format& format,
                                        int32_t columns) {
  append(fmt::format("scale_{}", name), expert_scales_of(format, magnitudes_of_row(columns)),
         with_groups({port("amax", amax_name(name))}),
         {port("scale", scale_name(name)), port("scale_inv", scales_name(name, format))});
}

void LayerGraphBuilder::find_weight_scales(std::string_view name, const QuantizeWeights& kind) {
  const MatrixAmax amax{.rows = kind.sections * kind.section_rows, .columns = kind.columns};
  append(fmt::format("amax_{}", name), amax, {port("input", name), port("skip", "skip_update")},
         {port("output", amax_name(name))});
  append(fmt::format("scale_{}", name), expert_scales_of(recipe_.weights, pieces_of(amax)),
         {port("amax", amax_name(name)), port("skip", "skip_update")},
         {port("scale", scale_name(name)), port("scale_inv", scales_name(name, recipe_.weights))});
}

void LayerGraphBuilder::cast_weights(std::string_view name, QuantizeWeights kind) {
  find_weight_scales(name, kind);
  kind.has_expert_scale = true;
  Operation& operation =
      append(fmt::format("quantize_{}", name), kind,
             {port("input", name), port("skip", "skip_update"), expert_scales(name)},
             {codes("output", name, recipe_.weights)});
  if (has_backward(layer_))
    operation.writes.push_back(optional(
        codes("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)));
}

Operation& LayerGraphBuilder::cast_permuted(std::string_view input, std::string_view name,
                                            const Format& format, PermutePad kind) {
  const bool moves_probs = input == "x";
  std::vector<Port> reads = {port("input", input), port("row_map", "row_map")};
  if (moves_probs) reads.push_back(port("probs", "topk_probs"));
  PermutePad amax = kind;
  amax.finds_amax = true;
  append(fmt::format("amax_{}", input), amax, reads, {port("output", amax_name(name))});
  find_row_scales(name, format, kind.columns);
  kind.quantize = QuantizeRows{.columns = kind.columns, .format = format};
  reads.push_back(expert_scales(name));
  Operation& cast =
      append(moves_probs ? "quantize_permute_pad" : "quantize_permute_pad_grad", std::move(kind),
             with_groups(std::move(reads)), {codes("output", name, format)});
  if (moves_probs) {
    cast.writes.push_back(port("output_probs", "permuted_probs"));
    cast.writes.back().is_repeated = phase_ == Phase::kBackward;
  }
  return cast;
}

void LayerGraphBuilder::cast_activation(const Format& format, Activate kind) {
  std::vector<Port> reads = with_groups({port("input", "h1"), port("probs", "permuted_probs")});
  Activate amax = kind;
  amax.finds_amax = true;
  append("amax_act", amax, reads, {port("output", amax_name("act"))});
  find_row_scales("act", format, kind.columns);
  reads.push_back(expert_scales("act"));
  append("activation_quantize", std::move(kind), std::move(reads),
         {codes("output", "act", format)});
}

Operation& LayerGraphBuilder::cast_activation_backward(const Format& format,
                                                       ActivationBackward kind) {
  std::vector<Port> reads =
      with_groups({port("input", "h1"), port("gradient", "dact"), port("probs", "permuted_probs")});
  ActivationBackward amax = kind;
  amax.finds_amax = true;
  append("amax_dh1", amax, reads, {port("output", amax_name("dh1"))});
  find_row_scales("dh1", format, kind.columns);
  reads.push_back(expert_scales("dh1"));
  return append("activation_backward_quantize", std::move(kind), std::move(reads),
                {optional(codes("output", "dh1", format))});
}

}  // namespace moejit::compiler
