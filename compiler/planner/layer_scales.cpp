// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"
#include "compiler/planner/layer_graph_builder.h"

#include <cmath>
#include <fmt/core.h>

// Adds the steps that make scales of experts: two passes and a small kernel between them. The first
// pass finds the largest magnitudes. With a history, scales are known before the values, so one
// pass casts the values and records their largest magnitudes.

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

template <typename Kind>
void LayerGraphBuilder::find_scales_of_pass(std::string_view pass, std::string_view name,
                                            const Format& format, Kind kind,
                                            const std::vector<Port>& reads) {
  if (recipe_.has_history) return;
  kind.finds_amax = true;
  append(std::string(pass), kind, reads, {port("output", amax_name(name))});
  find_row_scales(name, format, kind.columns);
}

void LayerGraphBuilder::find_weight_scales(std::string_view name, const QuantizeWeights& kind) {
  const MatrixAmax amax{.rows = kind.sections * kind.section_rows, .columns = kind.columns};
  append(fmt::format("amax_{}", name), amax, {port("input", name), skip_of_casts()},
         {port("output", amax_name(name))});
  append(fmt::format("scale_{}", name), expert_scales_of(recipe_.weights, pieces_of(amax)),
         {port("amax", amax_name(name)), skip_of_casts()},
         {port("scale", scale_name(name)), port("scale_inv", scales_name(name, recipe_.weights))});
}

void LayerGraphBuilder::cast_weights(std::string_view name, QuantizeWeights kind) {
  if (!recipe_.has_history) find_weight_scales(name, kind);
  kind.has_expert_scale = true;
  kind.amax = recorded_columns(name);
  Operation& operation = append(fmt::format("quantize_{}", name), kind,
                                {port("input", name), skip_of_casts(), expert_scales(name)},
                                {codes("output", name, recipe_.weights)});
  if (has_backward(layer_))
    operation.writes.push_back(optional(
        codes("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)));
  record_amax(operation, name, kind.amax);
}

Operation& LayerGraphBuilder::cast_permuted(std::string_view input, std::string_view name,
                                            const Format& format, PermutePad kind) {
  const bool moves_probs = input == "x";
  std::vector<Port> reads = {port("input", input), port("row_map", "row_map")};
  if (moves_probs) reads.push_back(port("probs", "topk_probs"));
  find_scales_of_pass(fmt::format("amax_{}", input), name, format, kind, reads);
  kind.quantize = QuantizeRows{.columns = kind.columns, .format = format};
  kind.amax = recorded_columns(name);
  const AmaxColumns columns = kind.amax;
  reads.push_back(expert_scales(name));
  Operation& cast =
      append(moves_probs ? "quantize_permute_pad" : "quantize_permute_pad_grad", std::move(kind),
             with_groups(std::move(reads)), {codes("output", name, format)});
  if (moves_probs) {
    cast.writes.push_back(port("output_probs", "permuted_probs"));
    cast.writes.back().is_repeated = phase_ == Phase::kBackward;
  }
  record_amax(cast, name, columns);
  return cast;
}

void LayerGraphBuilder::cast_activation(const Format& format, Activate kind) {
  std::vector<Port> reads = with_groups({port("input", "h1"), port("probs", "permuted_probs")});
  find_scales_of_pass("amax_act", "act", format, kind, reads);
  kind.amax = recorded_columns("act");
  const AmaxColumns columns = kind.amax;
  reads.push_back(expert_scales("act"));
  record_amax(append("activation_quantize", std::move(kind), std::move(reads),
                     {codes("output", "act", format)}),
              "act", columns);
}

Operation& LayerGraphBuilder::cast_activation_backward(const Format& format,
                                                       ActivationBackward kind) {
  std::vector<Port> reads =
      with_groups({port("input", "h1"), port("gradient", "dact"), port("probs", "permuted_probs")});
  find_scales_of_pass("amax_dh1", "dh1", format, kind, reads);
  kind.amax = recorded_columns("dh1");
  const AmaxColumns columns = kind.amax;
  reads.push_back(expert_scales("dh1"));
  Operation& cast = append("activation_backward_quantize", std::move(kind), std::move(reads),
                           {optional(codes("output", "dh1", format))});
  record_amax(cast, "dh1", columns);
  return cast;
}

AmaxColumns LayerGraphBuilder::recorded_columns(std::string_view name) const {
  const StateOf state = state_of(name);
  // The forward pass has recorded the magnitudes of a cast that backward repeats.
  const bool is_repeated = phase_ == Phase::kBackward && state.pass == Pass::kForward;
  return recipe_.has_history && !is_repeated ? state.columns : AmaxColumns{};
}

// The state is raised, not defined: no cast is made only for its sake.
void LayerGraphBuilder::record_amax(Operation& cast, std::string_view name,
                                    const AmaxColumns& columns) {
  if (!is_recorded(columns)) return;
  const StateOf state = state_of(name);
  cast.writes.push_back({.role = "amax",
                         .tensor = state_names(state.linear, state.pass).amax_history,
                         .is_repeated = true});
}

void LayerGraphBuilder::take_scales(std::string_view of_fc1, std::string_view of_fc2) {
  const StateOf state = state_of(of_fc1);
  const bool is_of_weights = phase_ == Phase::kWeights;
  std::vector<Port> reads = {port("fc1_stored", state_names("fc1", state.pass).scale),
                             port("fc2_stored", state_names("fc2", state.pass).scale)};
  if (is_of_weights) reads.push_back(skip_of_casts());
  const auto taken = [](std::string role, std::string_view name) {
    return Port{.role = std::move(role),
                .tensor = scale_name(name),
                .scale_inv = fmt::format("{}_scale_inv", name),
                .is_optional = true};
  };
  append(is_of_weights                   ? "take_weight_scales"
         : state.pass == Pass::kBackward ? "take_grad_scales"
                                         : "take_scales",
         TakeScales{.experts = layer_.local_experts, .columns = state.columns}, std::move(reads),
         {taken("fc1_scale", of_fc1), taken("fc2_scale", of_fc2)});
}

void LayerGraphBuilder::update_scales(Phase phase, Pass pass, const Format& format) {
  phase_ = phase;
  const float largest = format.dtype == DType::kF8E5M2 ? 57344.0f : 448.0f;
  std::vector<Port> reads, writes;
  for (const std::string_view linear : {"fc1", "fc2"}) {
    const StateNames names = state_names(linear, pass);
    for (std::vector<Port>* const ports : {&reads, &writes}) {
      ports->push_back(port(fmt::format("{}_amax_history", linear), names.amax_history));
      ports->push_back(port(fmt::format("{}_scale", linear), names.scale));
    }
  }
  append(pass == Pass::kBackward ? "update_grad_scales" : "update_scales",
         UpdateScales{.columns = state_columns(pass) * layer_.local_experts,
                      .history_length = layer_.amax_history_len,
                      .largest = std::ldexp(largest, -layer_.margin),
                      .algorithm = layer_.amax_compute_algo},
         std::move(reads), std::move(writes));
}

// Comes before the passes in the plan, and is called after them.
void LayerGraphBuilder::update_scales() {
  update_scales(Phase::kForwardScales, Pass::kForward, recipe_.tokens);
  if (has_backward(layer_))
    update_scales(Phase::kBackwardScales, Pass::kBackward, recipe_.gradients);
}

// Adds what formats need whose scales belong to whole rows or columns. Columns are cast in two
// passes, of which the first one finds their scales.

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

// Adds what formats need whose blocks' scales lie below one scale of an expert's rows. A pass over
// bf16 rows finds their largest magnitudes, and a small kernel the experts' scales. Casts by rows
// and by columns have the same experts' scales.

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
