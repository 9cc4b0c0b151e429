// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_graph.h"

#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Appends operations in the order in which they run. A function that makes rows in some format
// returns their port, for whoever reads them.
class LayerGraph {
 public:
  explicit LayerGraph(const Layer& layer) : layer_(layer), recipe_(layer.recipe) {
    graph_.values = layer_values(layer);
  }

  Graph build() {
    quantize_weights();
    forward();
    if (has_backward(layer_)) backward();
    return std::move(graph_);
  }

 private:
  static Port port(std::string role, std::string_view name, const Format& format = {}) {
    return {.role = std::move(role),
            .tensor = data_name(name, format),
            .scale_inv = scales_name(name, format)};
  }
  static Port optional(Port port) {
    port.is_optional = true;
    return port;
  }
  static std::vector<Port> with_groups(std::vector<Port> ports) {
    ports.push_back(port("counts", "counts"));
    ports.push_back(port("offs", "offs"));
    return ports;
  }
  // Returns the port of where the columns of wgrad's operands start.
  Port column_starts(std::string role) const {
    return port(std::move(role), has_colwise_offs(layer_) ? "colwise_offs" : "offs");
  }
  Operation& append(std::string name, OperationKind kind, std::vector<Port> reads,
                    std::vector<Port> writes) {
    graph_.operations.push_back({.name = std::move(name),
                                 .kind = std::move(kind),
                                 .reads = std::move(reads),
                                 .writes = std::move(writes),
                                 .phase = phase_});
    return graph_.operations.back();
  }
  bool writes(std::string_view tensor) const {
    return std::ranges::any_of(
        graph_.operations, [&](const Operation& operation) { return defines(operation, tensor); });
  }
  bool is_interleaved() const { return layer_.gate_up_layout == GateUpLayout::kInterleaved; }
  // Returns whether columns of h1 and dh1 have the order of w1's rows, which is multiplied as it
  // comes.
  bool has_interleaved_h1() const { return is_interleaved() && !has_scales(recipe_.weights); }
  int32_t h1_columns() const { return w1_sections(layer_) * padded_intermediate(layer_); }

  void quantize_weights();
  void quantize_weights(std::string_view name, QuantizeWeights kind);
  void forward();
  void experts();
  void backward();

  void quantize_x();
  void permute_x(const Format& format);
  void activate(const Format& format);
  void permute_dy(const Format& format);
  void activation_backward(const Format& format);
  void gemm_fc1();
  void gemm_fc2();
  void dgrad(std::string_view name, std::string_view weights, std::string_view gradients,
             int32_t columns, int32_t k, std::string_view output);
  void fc1_bias_grad();
  void fc2_bias_grad();
  void fc2_wgrad();
  void fc1_wgrad();
  void wgrad(std::string_view name, ContractionGroupedGemmSpec problem, const Port& a,
             const Port& b, std::string_view output);
  // Appends an operation once for each of the modes that backward calls may have.
  template <typename Append>
  void for_each_mode(const Append& append);

  Port rows(std::string_view name, const Format& format);
  Port wgrad_operand(std::string role, std::string_view rows_name, std::string_view name,
                     std::string_view transpose_name, int32_t columns);

  const Layer& layer_;
  const Recipe& recipe_;
  Phase phase_ = Phase::kWeights;
  Graph graph_;
};

void LayerGraph::quantize_weights() {
  phase_ = Phase::kWeights;
  quantize_weights("w1", {.sections = w1_sections(layer_),
                          .section_rows = layer_.intermediate,
                          .columns = layer_.hidden,
                          .is_interleaved = is_interleaved()});
  quantize_weights("w2", {.section_rows = layer_.hidden, .columns = layer_.intermediate});
}

void LayerGraph::quantize_weights(std::string_view name, QuantizeWeights kind) {
  if (!has_scales(recipe_.weights)) return;
  kind.local_experts = layer_.local_experts;
  kind.tiles_per_scale = layer_.scale_sharing_k;
  kind.epsilon = recipe_.weights.epsilon;
  Operation& operation = append(fmt::format("quantize_{}", name), kind,
                                {port("input", name), port("skip", "skip_update")},
                                {port("output", name, recipe_.weights)});
  if (has_backward(layer_) && has_scales(recipe_.weights_colwise))
    operation.writes.push_back(
        optional(port("output_colwise", fmt::format("{}_colwise", name), recipe_.weights_colwise)));
}

void LayerGraph::forward() {
  phase_ = Phase::kForward;
  quantize_x();
  Operation& route =
      append("route",
             Route{.local_experts = layer_.local_experts,
                   .top_k = layer_.top_k,
                   .splits_alignment = layer_.splits_alignment,
                   .topk_ids = topk_ids_dtype(layer_),
                   .ignores_foreign = layer_.foreign_experts == ForeignExperts::kIgnore},
             {port("topk_ids", "topk_ids")},
             {port("counts", "counts"), port("offs", "offs"), port("row_map", "row_map"),
              port("status", "status")});
  if (has_colwise_offs(layer_))
    route.writes.push_back(optional(port("colwise_offs", "colwise_offs")));
  if (has_backward(layer_)) route.writes.push_back(port("saved_tokens", "saved_tokens"));
  permute_x(recipe_.tokens);
  gemm_fc1();
  activate(recipe_.activations);
  gemm_fc2();
  append("unpermute", Unpermute{.columns = layer_.hidden, .top_k = layer_.top_k},
         {port("input", "h2"), port("row_map", "row_map")}, {port("output", "y")});
}

void LayerGraph::quantize_x() {
  if (!has_scales(recipe_.tokens)) return;
  append("quantize",
         QuantizeRows{.columns = layer_.hidden,
                      .format = recipe_.tokens,
                      .blocks_per_scale = layer_.scale_sharing_k,
                      .reason = "the first of the two explicit casts of the layer"},
         {port("input", "x")}, {port("output", "x", recipe_.tokens)});
}

void LayerGraph::permute_x(const Format& format) {
  Operation& permute =
      append("permute_pad",
             PermutePad{.columns = layer_.hidden,
                        .experts = layer_.experts,
                        .local_experts = layer_.local_experts,
                        .top_k = layer_.top_k,
                        .probs = topk_probs_dtype(layer_)},
             with_groups({port("input", "x", format), port("probs", "topk_probs"),
                          port("row_map", "row_map")}),
             {port("output", "permuted", format), port("output_probs", "permuted_probs")});
  // Done again, it is for the rows alone.
  permute.writes.back().is_repeated = phase_ == Phase::kBackward;
}

void LayerGraph::gemm_fc1() {
  GroupedGemmSpec problem{.local_experts = layer_.local_experts,
                          .sections = w1_sections(layer_),
                          .section_n = layer_.intermediate,
                          .k = layer_.hidden,
                          .blocks_per_promotion = layer_.scale_sharing_k};
  set_formats(problem, recipe_.tokens);
  std::vector<Port> reads =
      with_groups({port("a", "permuted", recipe_.tokens), port("b", "w1", recipe_.weights)});
  if (layer_.biases) {
    problem.bias = GemmBias::kColumns;
    problem.has_interleaved_bias = is_interleaved() && !has_interleaved_h1();
    reads.push_back(port("bias", "b1"));
  }
  append("gemm_fc1", GroupedGemm{problem}, std::move(reads), {port("d", "h1")});
}

void LayerGraph::activate(const Format& format) {
  append(has_scales(format) ? "activation_quantize" : "activation",
         Activate{.local_experts = layer_.local_experts,
                  .columns = layer_.intermediate,
                  .activation = layer_.activation,
                  .format = format,
                  .blocks_per_scale = layer_.scale_sharing_k,
                  .is_interleaved = has_interleaved_h1()},
         with_groups({port("input", "h1"), port("probs", "permuted_probs")}),
         {port("output", "act", format)});
}

// The probability is in act already, but not in b2.
void LayerGraph::gemm_fc2() {
  GroupedGemmSpec problem{.local_experts = layer_.local_experts,
                          .section_n = layer_.hidden,
                          .k = layer_.intermediate,
                          .blocks_per_promotion = layer_.scale_sharing_k};
  set_formats(problem, recipe_.activations);
  std::vector<Port> reads =
      with_groups({port("a", "act", recipe_.activations), port("b", "w2", recipe_.weights)});
  if (layer_.biases) {
    problem.bias = GemmBias::kColumnsTimesProb;
    reads.push_back(port("bias", "b2"));
    reads.push_back(port("probs", "permuted_probs"));
  }
  append("gemm_fc2", GroupedGemm{problem}, std::move(reads), {port("d", "h2")});
}

// Each gradient is used up before the next one is made, so that they can share memory.
void LayerGraph::backward() {
  phase_ = Phase::kBackward;
  if (layer_.recompute == Recompute::kMoeExpert) {
    gemm_fc1();
    activate(recipe_.activations);
  }
  permute_dy(recipe_.gradients);
  if (layer_.biases) fc2_bias_grad();
  dgrad("gemm_fc2_dgrad", "w2", "grad_permuted", layer_.intermediate, layer_.hidden, "dact");
  fc2_wgrad();
  activation_backward(recipe_.gradients);
  if (layer_.biases) fc1_bias_grad();
  fc1_wgrad();
  dgrad("gemm_fc1_dgrad", "w1", "dh1", layer_.hidden, h1_columns(), "dx_permuted");
  std::vector<Port> reads = {port("input", "dx_permuted"), port("row_map", "row_map"),
                             port("dprobs_blocks", "dprobs_blocks")};
  if (layer_.biases) reads.push_back(port("bias_dprobs", "bias_dprobs"));
  append("unpermute_grad",
         Unpermute{.columns = layer_.hidden,
                   .top_k = layer_.top_k,
                   .dprobs_columns = (layer_.intermediate + 127) / 128,
                   .probs = topk_probs_dtype(layer_)},
         std::move(reads), {optional(port("output", "dx")), optional(port("dprobs", "dprobs"))});
}

// Of the GEMMs that read gradients the contraction runs along rows of weights, whose scale blocks
// share no scale. Unpermute is a plain sum: its gradient knows no probability.
void LayerGraph::permute_dy(const Format& format) {
  if (has_scales(format) && !writes(data_name("dy", format)))
    append("quantize_dy",
           QuantizeRows{.columns = layer_.hidden,
                        .format = format,
                        .reason = "the second of the two explicit casts of the layer"},
           {port("input", "dy")}, {port("output", "dy", format)});
  append("permute_pad_grad",
         PermutePad{.columns = layer_.hidden,
                    .experts = layer_.experts,
                    .local_experts = layer_.local_experts,
                    .top_k = layer_.top_k},
         with_groups({port("input", "dy", format), port("row_map", "row_map")}),
         {optional(port("output", "grad_permuted", format))});
}

// dA = dD * B[e], contracted along the rows of the forward GEMM's B: of a transposed copy, or in
// bf16 of B itself.
void LayerGraph::dgrad(std::string_view name, std::string_view weights, std::string_view gradients,
                       int32_t columns, int32_t k, std::string_view output) {
  const Format& format = recipe_.weights_colwise;
  GroupedGemmSpec problem{.b_major = has_scales(format) ? Major::kK : Major::kMn,
                          .local_experts = layer_.local_experts,
                          .section_n = columns,
                          .k = k};
  set_formats(problem, recipe_.gradients);
  const std::string b = fmt::format("{}{}", weights, has_scales(format) ? "_colwise" : "");
  append(std::string(name), GroupedGemm{problem},
         with_groups({port("a", gradients, recipe_.gradients), port("b", b, format)}),
         {port("d", output)});
}

void LayerGraph::activation_backward(const Format& format) {
  // Done again in another format, it is for the rows alone.
  const bool tells_dprobs = !writes("dprobs_blocks");
  Operation& operation = append(
      has_scales(format) ? "activation_backward_quantize" : "activation_backward",
      ActivationBackward{.local_experts = layer_.local_experts,
                         .columns = layer_.intermediate,
                         .pitch = padded_intermediate(layer_),
                         .activation = layer_.activation,
                         .format = format,
                         .is_interleaved = has_interleaved_h1()},
      with_groups({port("input", "h1"), port("gradient", "dact"), port("probs", "permuted_probs")}),
      {optional(port("output", "dh1", format))});
  if (tells_dprobs) operation.writes.push_back(optional(port("output_dprobs", "dprobs_blocks")));
}

// Returns the rows of that name in a format, and makes them if no operation has.
Port LayerGraph::rows(std::string_view name, const Format& format) {
  const Port made = port("input", name, format);
  if (writes(made.tensor)) return made;
  if (name == "permuted") permute_x(format);
  if (name == "act") activate(format);
  if (name == "grad_permuted") permute_dy(format);
  if (name == "dh1") activation_backward(format);
  return made;
}

// Returns an operand of wgrad: a transposed copy of rows, or in bf16 rows as they are.
Port LayerGraph::wgrad_operand(std::string role, std::string_view rows_name, std::string_view name,
                               std::string_view transpose_name, int32_t columns) {
  const Format& format = recipe_.wgrad_operands;
  Port operand = rows(rows_name, has_scales(format) ? kRows1x128 : format);
  if (has_scales(format)) {
    append(std::string(transpose_name),
           Transpose{.local_experts = layer_.local_experts, .columns = columns},
           with_groups({operand, column_starts("output_offs")}), {port("output", name, format)});
    operand = port("", name, format);
  }
  operand.role = std::move(role);
  return operand;
}

template <typename Append>
void LayerGraph::for_each_mode(const Append& append_in) {
  append_in(GradientMode::kOverwrite, "");
  if (adds_gradients(layer_)) append_in(GradientMode::kAdd, "_add");
}

void LayerGraph::wgrad(std::string_view name, ContractionGroupedGemmSpec problem, const Port& a,
                       const Port& b, std::string_view output) {
  problem.scales =
      has_scales(recipe_.wgrad_operands) ? GradientScales::kTile : GradientScales::kNone;
  problem.local_experts = layer_.local_experts;
  for_each_mode([&](GradientMode mode, std::string_view end) {
    problem.output = layer_.wgrad_dtype == WgradDtype::kBf16 ? GradientOutput::kBf16
                     : mode == GradientMode::kAdd            ? GradientOutput::kF32Add
                                                             : GradientOutput::kF32;
    append(fmt::format("{}{}", name, end), Wgrad{problem},
           {a, b, port("counts", "counts"), column_starts("offs")}, {port("d", output)})
        .gradient_mode = mode;
  });
}

void LayerGraph::fc2_wgrad() {
  const Port a =
      wgrad_operand("a", "grad_permuted", "grad_colwise", "transpose_grad", layer_.hidden);
  const Port b = wgrad_operand("b", "act", "act_colwise", "transpose_act", layer_.intermediate);
  wgrad("gemm_fc2_wgrad", {.rows = layer_.hidden, .n = layer_.intermediate}, a, b, "dw2");
}

void LayerGraph::fc1_wgrad() {
  const Port a = wgrad_operand("a", "dh1", "dh1_colwise", "transpose_dh1", h1_columns());
  const Port b = wgrad_operand("b", "permuted", "x_colwise", "transpose_x", layer_.hidden);
  const int32_t padded = padded_intermediate(layer_);
  ContractionGroupedGemmSpec problem{.rows = h1_columns(),
                                     .is_interleaved = is_interleaved() && !has_interleaved_h1(),
                                     .n = layer_.hidden};
  if (padded != layer_.intermediate || problem.is_interleaved) {
    problem.sections = 2;
    problem.section_rows = layer_.intermediate;
  }
  wgrad("gemm_fc1_wgrad", problem, a, b, "dw1");
}

void LayerGraph::fc2_bias_grad() {
  append("bias_dprobs", BiasDprobs{.local_experts = layer_.local_experts, .columns = layer_.hidden},
         with_groups({port("input", "grad_permuted", recipe_.gradients), port("bias", "b2")}),
         {port("output", "bias_dprobs")});
  for_each_mode([&](GradientMode mode, std::string_view end) {
    append(fmt::format("fc2_bias_grad{}", end),
           BiasGradient{{.local_experts = layer_.local_experts,
                         .section_columns = layer_.hidden,
                         .pitch = layer_.hidden,
                         .times_prob = true,
                         .adds = mode == GradientMode::kAdd}},
           with_groups({port("input", "grad_permuted", recipe_.gradients),
                        port("probs", "permuted_probs")}),
           {port("output", "db2")})
        .gradient_mode = mode;
  });
}

// In bf16 the columns of dh1 have the order of b1, whatever it is.
void LayerGraph::fc1_bias_grad() {
  const bool has_sections = has_scales(recipe_.gradients);
  const int32_t columns = w1_sections(layer_) * layer_.intermediate;
  ColumnSumsSpec spec{.local_experts = layer_.local_experts,
                      .sections = has_sections ? w1_sections(layer_) : 1,
                      .section_columns = has_sections ? layer_.intermediate : columns,
                      .pitch = has_sections ? padded_intermediate(layer_) : columns,
                      .is_interleaved = is_interleaved() && !has_interleaved_h1()};
  for_each_mode([&](GradientMode mode, std::string_view end) {
    spec.adds = mode == GradientMode::kAdd;
    append(fmt::format("fc1_bias_grad{}", end), BiasGradient{spec},
           with_groups({port("input", "dh1", recipe_.gradients)}), {port("output", "db1")})
        .gradient_mode = mode;
  });
}

}  // namespace

Graph layer_graph(const Layer& layer) { return LayerGraph(layer).build(); }

std::vector<std::string> layer_outputs(const Layer& layer) {
  std::vector<std::string> outputs = {"y"};
  for (const Gradient gradient : gradients_of(layer)) outputs.emplace_back(to_string(gradient));
  return outputs;
}

}  // namespace moejit::compiler
