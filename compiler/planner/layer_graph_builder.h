// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Appends operations in the order in which they run. A function that makes rows in some format
// returns their port, for the operations that read them.
class LayerGraphBuilder {
 public:
  explicit LayerGraphBuilder(const Layer& layer) : layer_(layer), recipe_(layer.recipe) {
    graph_.values = layer_values(layer);
  }

  Graph build() {
    quantize_weights();
    if (recipe_.has_history) update_scales();
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
  // Returns the port of the offsets at which groups of wgrad's columns start.
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
  bool has_separate_gate_up() const { return compiler::has_separate_gate_up(layer_); }
  // Returns whether GEMMs read w1_gate and w1_up. Otherwise the cast of w1 joins them.
  bool multiplies_separate() const {
    return has_separate_gate_up() && !is_quantized(recipe_.weights);
  }
  // Returns whether the columns of h1 and dh1 alternate like w1's rows, because w1 is multiplied in
  // its given order.
  bool has_interleaved_h1() const { return is_interleaved() && !has_scales(recipe_.weights); }
  int32_t h1_columns() const { return w1_sections(layer_) * padded_intermediate(layer_); }

  void check_weights();
  // Returns the port of the word that makes casts of weights do nothing if it is not 0.
  Port skip_of_casts() const;
  void quantize_weights();
  // Appends the cast of w1 or w2; in backward the cast of its columns alone.
  void quantize_weights(std::string_view name);
  void quantize_weight_columns(std::string_view name, const QuantizeWeights& kind);
  static std::vector<Port> weights_read(std::string_view name, const QuantizeWeights& kind);
  void recover_weights(std::string_view name, const QuantizeWeights& kind);
  void quantize_weight_rows(std::string_view name, const QuantizeWeights& kind);
  // Appends the two passes that cast values of groups by columns. `made` names them, `name` is what
  // they make; `starts` is where the groups' columns begin, or a port without a tensor.
  void cast_columns(std::string_view made, std::string_view name, const ColumnGroups& groups,
                    const Format& format, std::vector<Port> reads, const Port& starts);
  void forward();
  void backward();

  // Returns the port of the experts' scales that an operation casts `name` with.
  static Port expert_scales(std::string_view name) {
    return port("expert_scales", scale_name(name));
  }
  // Returns the port of codes whose scales another operation finds.
  static Port codes(std::string role, std::string_view name, const Format& format) {
    return port(std::move(role), data_name(name, format));
  }
  // Append the operations that find the scales of the experts, for rows and for matrices of
  // weights.
  void find_row_scales(std::string_view name, const Format& format, int32_t columns);
  // Appends the pass `kind` over rows, which finds the largest magnitudes and casts nothing. Then
  // appends what finds the scales. Does nothing if scales are there before the values.
  template <typename Kind>
  void find_scales_of_pass(std::string_view pass, std::string_view name, const Format& format,
                           Kind kind, const std::vector<Port>& reads);
  void find_weight_scales(std::string_view name, const QuantizeWeights& kind);
  ExpertScales expert_scales_of(const Format& format, int64_t magnitudes) const;
  // Returns the port of the scales with which bf16 rows of that name are cast. Appends the
  // operations that find them if none have.
  Port row_scales(std::string_view name, int32_t columns, const Format& format);
  // Appends the cast of bf16 rows in blocks of a row, with these scales above the blocks' scales.
  void cast_rows(std::string_view name, int32_t columns, const Format& format);
  // Append the casts of operations with such scales, and the operations before that find the
  // scales.
  void cast_weights(std::string_view name, QuantizeWeights kind);
  Operation& cast_permuted(std::string_view input, std::string_view name, const Format& format,
                           PermutePad kind);
  // Append the operations of recipes with a history: scales out of the state before the casts of
  // two operands, and their update after a step.
  void take_scales(std::string_view of_fc1, std::string_view of_fc2);
  void update_scales();
  void update_scales(Phase phase, Pass pass, const Format& format);
  // Returns the columns of an operand whose cast records its largest magnitudes; none where this
  // recipe or this cast records nothing.
  AmaxColumns recorded_columns(std::string_view name) const;
  // Adds the state that a cast raises to its writes, where it records.
  static void record_amax(Operation& cast, std::string_view name, const AmaxColumns& columns);
  void cast_activation(const Format& format, Activate kind);
  Operation& cast_activation_backward(const Format& format, ActivationBackward kind);

  void quantize_x();
  void permute_x(const Format& format);
  void activate(const Format& format);
  void permute_dy(const Format& format);
  void activation_backward(const Format& format);
  // Appends w1_gate and w1_up as B of a GEMM that multiplies both, and tells its spec so.
  void read_separate(GroupedGemmSpec& problem, std::vector<Port>& reads) const;
  void gemm_fc1();
  void gemm_fc2();
  void dgrad(std::string_view name, std::string_view weights, std::string_view gradients,
             int32_t columns, int32_t k, std::string_view output);
  void fc1_bias_grad();
  void fc2_bias_grad();
  void fc2_wgrad();
  void fc1_wgrad();
  // Appends the GEMM whose result is the only output, or gate's and up's, where it is separate.
  void wgrad(std::string_view name, ContractionGroupedGemmSpec problem, const Port& a,
             const Port& b, const std::vector<std::string>& outputs);
  // Appends an operation once for each gradient mode that backward calls may have.
  template <typename Append>
  void for_each_mode(const Append& append);

  Port rows(std::string_view name, const Format& format);
  Port cast_operand(std::string_view rows_name, std::string_view name, std::string_view what,
                    int32_t columns);
  Port wgrad_operand(std::string role, std::string_view rows_name, const Format& rows_format,
                     std::string_view name, std::string_view what, int32_t columns);

  const Layer& layer_;
  const Recipe& recipe_;
  Phase phase_ = Phase::kWeights;
  Graph graph_;
};

}  // namespace moejit::compiler
