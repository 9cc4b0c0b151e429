// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_graph_builder.h"
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {

void LayerGraphBuilder::quantize_weights() {
  phase_ = Phase::kWeights;
  if (layer_.weight_checks) check_weights();
  if (recipe_.has_history) take_scales("w1", "w2");
  quantize_weights("w1");
  quantize_weights("w2");
}

void LayerGraphBuilder::check_weights() {
  append("check_weights", CheckWeights{weight_check_of(layer_)},
         {port("w1", "w1"), port("w2", "w2"), port("skip", "skip_update")},
         {port("digest", "weights_digest"), port("status", "status")});
}

Port LayerGraphBuilder::skip_of_casts() const {
  return port("skip", layer_.weight_checks ? "weights_digest" : "skip_update");
}

void LayerGraphBuilder::quantize_weights(std::string_view name) {
  QuantizeWeights kind{.section_rows = layer_.hidden, .columns = layer_.intermediate};
  if (name == "w1")
    kind = {.sections = w1_sections(layer_),
            .section_rows = layer_.intermediate,
            .columns = layer_.hidden,
            .is_interleaved = is_interleaved(),
            .is_separate = has_separate_gate_up()};
  if (recipe_.weights.is_recovered) return recover_weights(name, kind);
  if (!has_scales(recipe_.weights) || is_packed(recipe_.weights)) return;
  kind.local_experts = layer_.local_experts;
  kind.tiles_per_scale = layer_.scale_sharing_k;
  kind.epsilon = recipe_.weights.epsilon;
  if (phase_ == Phase::kBackward) return quantize_weight_columns(name, kind);
  if (has_expert_scale(recipe_.weights)) return cast_weights(name, kind);
  if (has_row_scale(recipe_.weights)) return quantize_weight_rows(name, kind);
  std::vector<Port> reads = weights_read(name, kind);
  reads.push_back(skip_of_casts());
  Operation& operation = append(fmt::format("quantize_{}", name), kind, std::move(reads),
                                {port("output", name, recipe_.weights)});
  if (has_backward(layer_) && has_scales(recipe_.weights_colwise) &&
      !layer_.backward_quantizes_weights)
    operation.writes.push_back(
        optional(port("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)));
}

std::vector<Port> LayerGraphBuilder::weights_read(std::string_view name,
                                                  const QuantizeWeights& kind) {
  if (!kind.is_separate) return {port("input", name)};
  return {port("input", fmt::format("{}_gate", name)),
          port("input_up", fmt::format("{}_up", name))};
}

void LayerGraphBuilder::quantize_weight_columns(std::string_view name,
                                                const QuantizeWeights& kind) {
  append(fmt::format("quantize_{}_columns", name), kind, weights_read(name, kind),
         {port("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)});
}

// Weights are cast as they lie, along either contraction, or in square blocks once for both.
void LayerGraphBuilder::recover_weights(std::string_view name, const QuantizeWeights& kind) {
  std::vector<Port> reads = {port("input", name), skip_of_casts()};
  if (has_two_levels(recipe_.weights)) {
    find_weight_scales(name, kind);
    reads.push_back(expert_scales(name));
  }
  std::vector<Port> writes = {codes("output", name, recipe_.weights)};
  if (has_backward(layer_) && !has_square_blocks(recipe_.weights_colwise))
    writes.push_back(
        optional(port("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)));
  append(fmt::format("quantize_{}", name),
         CastBlocks{.local_experts = layer_.local_experts,
                    .matrix_rows = kind.sections * kind.section_rows,
                    .columns = kind.columns,
                    .format = recipe_.weights},
         std::move(reads), std::move(writes));
}

void LayerGraphBuilder::forward() {
  phase_ = Phase::kForward;
  quantize_x();
  Operation& route =
      append("route",
             Route{.local_experts = layer_.local_experts,
                   .top_k = layer_.top_k,
                   .splits_alignment = layer_.splits_alignment,
                   .topk_ids = dtype_of(layer_.topk_ids_dtype),
                   .ignores_foreign = layer_.foreign_experts == ForeignExperts::kIgnore},
             {port("topk_ids", "topk_ids")},
             {port("counts", "counts"), port("offs", "offs"), port("row_map", "row_map"),
              port("status", "status")});
  if (has_colwise_offs(layer_))
    route.writes.push_back(optional(port("colwise_offs", "colwise_offs")));
  if (has_backward(layer_)) route.writes.push_back(port("saved_tokens", "saved_tokens"));
  if (recipe_.has_history) take_scales("permuted", "act");
  permute_x(recipe_.tokens);
  gemm_fc1();
  activate(recipe_.activations);
  gemm_fc2();
  append("unpermute", Unpermute{.columns = layer_.hidden, .top_k = layer_.top_k},
         {port("input", "h2"), port("row_map", "row_map")}, {port("output", "y")});
}

void LayerGraphBuilder::quantize_x() {
  if (!is_quantized(recipe_.tokens) || has_expert_factor(recipe_.tokens)) return;
  append("quantize",
         QuantizeRows{.columns = layer_.hidden,
                      .format = recipe_.tokens,
                      .blocks_per_scale = layer_.scale_sharing_k,
                      .reason = "the first of the two explicit casts of the layer"},
         {port("input", "x")}, {port("output", "x", recipe_.tokens)});
}

void LayerGraphBuilder::permute_x(const Format& format) {
  PermutePad kind{.columns = layer_.hidden,
                  .experts = layer_.experts,
                  .local_experts = layer_.local_experts,
                  .top_k = layer_.top_k,
                  .probs = dtype_of(layer_.topk_probs_dtype)};
  if (has_expert_scale(format)) {
    cast_permuted("x", "permuted", format, std::move(kind));
    return;
  }
  if (has_two_levels(format)) {
    permute_x(Format{});
    return cast_rows("permuted", layer_.hidden, format);
  }
  Operation& permute =
      append("permute_pad", std::move(kind),
             with_groups({port("input", "x", format), port("probs", "topk_probs"),
                          port("row_map", "row_map")}),
             {port("output", "permuted", format), port("output_probs", "permuted_probs")});
  // If backward permutes again, only the rows are needed, not the probabilities.
  permute.writes.back().is_repeated = phase_ == Phase::kBackward;
}

void LayerGraphBuilder::read_separate(GroupedGemmSpec& problem, std::vector<Port>& reads) const {
  problem.separate_rows = layer_.intermediate;
  std::ranges::find(reads, "b", &Port::role)->tensor = "w1_gate";
  reads.push_back(port("b_up", "w1_up"));
}

void LayerGraphBuilder::gemm_fc1() {
  GroupedGemmSpec problem{.local_experts = layer_.local_experts,
                          .sections = w1_sections(layer_),
                          .section_n = layer_.intermediate,
                          .k = layer_.hidden,
                          .blocks_per_promotion = layer_.scale_sharing_k};
  set_formats(problem, recipe_.tokens, recipe_.weights);
  if (recipe_.is_fprop_fast) problem.accumulation = GemmAccumulation::kFast;
  std::vector<Port> reads =
      with_groups({port("a", "permuted", recipe_.tokens), port("b", "w1", recipe_.weights)});
  if (multiplies_separate()) read_separate(problem, reads);
  if (layer_.biases) {
    problem.bias = GemmBias::kColumns;
    problem.has_interleaved_bias = is_interleaved() && !has_interleaved_h1();
    reads.push_back(port("bias", "b1"));
  }
  append("gemm_fc1", GroupedGemm{problem}, std::move(reads), {port("d", "h1")});
}

void LayerGraphBuilder::activate(const Format& format) {
  if (has_two_levels(format)) {
    activate(Format{});
    return cast_rows("act", layer_.intermediate, format);
  }
  Activate kind{.local_experts = layer_.local_experts,
                .columns = layer_.intermediate,
                .activation = layer_.activation,
                .format = format,
                .blocks_per_scale = layer_.scale_sharing_k,
                .is_interleaved = has_interleaved_h1()};
  if (has_expert_scale(format)) return cast_activation(format, std::move(kind));
  append(is_quantized(format) ? "activation_quantize" : "activation", std::move(kind),
         with_groups({port("input", "h1"), port("probs", "permuted_probs")}),
         {port("output", "act", format)});
}

// act already contains the probability, but b2 does not.
void LayerGraphBuilder::gemm_fc2() {
  GroupedGemmSpec problem{.local_experts = layer_.local_experts,
                          .section_n = layer_.hidden,
                          .k = layer_.intermediate,
                          .blocks_per_promotion = layer_.scale_sharing_k};
  set_formats(problem, recipe_.activations, recipe_.weights);
  if (recipe_.is_fprop_fast) problem.accumulation = GemmAccumulation::kFast;
  std::vector<Port> reads =
      with_groups({port("a", "act", recipe_.activations), port("b", "w2", recipe_.weights)});
  if (layer_.biases) {
    problem.bias = GemmBias::kColumnsTimesProb;
    reads.push_back(port("bias", "b2"));
    reads.push_back(port("probs", "permuted_probs"));
  }
  append("gemm_fc2", GroupedGemm{problem}, std::move(reads), {port("d", "h2")});
}

Graph layer_graph(const Layer& layer) { return LayerGraphBuilder(layer).build(); }

std::vector<std::string> layer_outputs(const Layer& layer) {
  std::vector<std::string> outputs = {"y"};
  for (const Gradient gradient : gradients_of(layer))
    for (std::string& name : tensors_of(layer, gradient)) outputs.push_back(std::move(name));
  // No gradient needs the scales of the next step.
  if (!layer.recipe.has_history) return outputs;
  for (const Pass pass : layer.passes)
    for (const std::string_view linear : {"fc1", "fc2"})
      outputs.push_back(state_names(linear, pass).scale);
  return outputs;
}

}  // namespace moejit::compiler
