// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_graph_builder.h"

#include <fmt/core.h>

namespace moejit::compiler {

namespace {

GradientScales gradient_scales(const Format& operands) {
  if (has_two_levels(operands)) return GradientScales::kTensor;
  if (!has_scales(operands)) return GradientScales::kNone;
  switch (operands.scale) {
    case ScaleOf::kNone: return GradientScales::kNone;
    case ScaleOf::k128x1: return GradientScales::kRow;
    case ScaleOf::kExpert: return GradientScales::kTensor;
    case ScaleOf::kColumn: return GradientScales::kRowColumn;
    case ScaleOf::kRow:
    case ScaleOf::k1x128:
    case ScaleOf::k128x128:
    case ScaleOf::k1x32:
    case ScaleOf::k32x1:
    case ScaleOf::k1x16:
    case ScaleOf::k16x1:
    case ScaleOf::k16x16:
    case ScaleOf::kSection: break;
  }
  return GradientScales::kTile;
}

GradientOutput gradient_output(WgradDtype dtype, GradientMode mode) {
  const bool adds = mode == GradientMode::kAdd;
  if (dtype == WgradDtype::kBf16) return adds ? GradientOutput::kBf16Add : GradientOutput::kBf16;
  return adds ? GradientOutput::kF32Add : GradientOutput::kF32;
}

}  // namespace

// Each gradient is read for the last time before later ones are made, so that they can share
// memory.
void LayerGraphBuilder::backward() {
  phase_ = Phase::kBackward;
  if (layer_.recompute == Recompute::kMoeExpert) {
    gemm_fc1();
    activate(recipe_.activations);
  }
  if (recipe_.has_history) take_scales("dh1", "grad_permuted");
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
                   .probs = dtype_of(layer_.topk_probs_dtype)},
         std::move(reads), {optional(port("output", "dx")), optional(port("dprobs", "dprobs"))});
}

// dgrad contracts along weight rows. Scale blocks share no scale in that direction, so gradients
// never share scales. Unpermute is a plain sum, so its gradient contains no probability.
void LayerGraphBuilder::permute_dy(const Format& format) {
  PermutePad kind{.columns = layer_.hidden,
                  .experts = layer_.experts,
                  .local_experts = layer_.local_experts,
                  .top_k = layer_.top_k};
  if (has_expert_scale(format)) {
    Operation& cast = cast_permuted("dy", "grad_permuted", format, std::move(kind));
    cast.writes.front().is_optional = true;
    return;
  }
  if (has_two_levels(format)) {
    permute_dy(Format{});
    cast_operand("grad_permuted", "grad_colwise", "grad", layer_.hidden);
    return;
  }
  if (is_quantized(format) && !writes(data_name("dy", format)))
    append("quantize_dy",
           QuantizeRows{.columns = layer_.hidden,
                        .format = format,
                        .reason = "the second of the two explicit casts of the layer"},
           {port("input", "dy")}, {port("output", "dy", format)});
  append("permute_pad_grad", std::move(kind),
         with_groups({port("input", "dy", format), port("row_map", "row_map")}),
         {optional(port("output", "grad_permuted", format))});
}

// Appends dA = dD * B[e], which contracts along the rows of the forward GEMM's B. It reads a
// transposed copy of B. In bf16, and of values in square blocks, it reads B itself.
void LayerGraphBuilder::dgrad(std::string_view name, std::string_view weights,
                              std::string_view gradients, int32_t columns, int32_t k,
                              std::string_view output) {
  const Format& format = recipe_.weights_colwise;
  GroupedGemmSpec problem{.b_major = has_scales(format) ? Major::kK : Major::kMn,
                          .local_experts = layer_.local_experts,
                          .section_n = columns,
                          .k = k};
  set_formats(problem, recipe_.gradients, format);
  if (recipe_.is_backward_fast) problem.accumulation = GemmAccumulation::kFast;
  const bool has_copy = is_quantized(format) && !has_square_blocks(format);
  if (layer_.backward_quantizes_weights) quantize_weights(weights);
  Port b = port("b", fmt::format("{}{}", weights, has_copy ? "_colwise" : ""), format);
  if (has_expert_scale(format)) b.scale_inv = scales_name(weights, format);
  std::vector<Port> reads = with_groups({port("a", gradients, recipe_.gradients), std::move(b)});
  if (weights == "w1" && multiplies_separate()) read_separate(problem, reads);
  append(std::string(name), GroupedGemm{problem}, std::move(reads), {port("d", output)});
}

void LayerGraphBuilder::activation_backward(const Format& format) {
  // One kernel makes the casts by rows and by columns where GEMMs read recovered values.
  if (format.is_recovered) {
    cast_operand("dh1", "dh1_colwise", "dh1", h1_columns());
    return;
  }
  // If this runs again for another format, only the rows are needed.
  const bool tells_dprobs = !writes("dprobs_blocks");
  ActivationBackward kind{
      .local_experts = layer_.local_experts,
      .columns = layer_.intermediate,
      .pitch = has_scales(format) ? padded_intermediate(layer_) : wgrad_intermediate(layer_),
      .activation = layer_.activation,
      .format = format,
      .is_interleaved = has_interleaved_h1()};
  Operation& operation =
      has_expert_scale(format)
          ? cast_activation_backward(format, std::move(kind))
          : append(is_quantized(format) ? "activation_backward_quantize" : "activation_backward",
                   std::move(kind),
                   with_groups({port("input", "h1"), port("gradient", "dact"),
                                port("probs", "permuted_probs")}),
                   {optional(port("output", "dh1", format))});
  if (tells_dprobs) operation.writes.push_back(optional(port("output_dprobs", "dprobs_blocks")));
}

// Returns the rows of that name in a format, and makes them if no operation has.
Port LayerGraphBuilder::rows(std::string_view name, const Format& format) {
  const Port made = port("input", name, format);
  if (writes(made.tensor)) return made;
  if (name == "permuted") permute_x(format);
  if (name == "act") activate(format);
  if (name == "grad_permuted") permute_dy(format);
  if (name == "dh1") activation_backward(format);
  return made;
}

// Returns an operand of wgrad whose values are recovered: a cast by columns of bf16 rows, which
// stay where they are. For gradients that nobody has cast by rows yet, the cast by rows is made
// with it.
Port LayerGraphBuilder::cast_operand(std::string_view rows_name, std::string_view name,
                                     std::string_view what, int32_t columns) {
  const Format& format = recipe_.wgrad_operands;
  Port operand = codes("", name, format);
  operand.scale_inv = scales_name(rows_name, format);
  if (writes(operand.tensor)) return operand;
  std::vector<Port> reads = with_groups({rows(rows_name, Format{})});
  if (has_two_levels(format)) reads.push_back(row_scales(rows_name, columns, format));
  std::vector<Port> casts;
  if (const Port by_rows = codes("output", rows_name, recipe_.gradients); !writes(by_rows.tensor))
    casts.push_back(optional(by_rows));
  casts.push_back(optional(codes("output_colwise", name, format)));
  append(fmt::format("quantize_columns_{}", what),
         CastBlocks{.local_experts = layer_.local_experts, .columns = columns, .format = format},
         std::move(reads), std::move(casts));
  return operand;
}

// Returns an operand of wgrad: a transposed copy of quantized rows, a cast of bf16 rows, or in bf16
// the rows themselves. If rows have a scale for each expert, the operand has the same bytes and
// scales.
Port LayerGraphBuilder::wgrad_operand(std::string role, std::string_view rows_name,
                                      const Format& rows_format, std::string_view name,
                                      std::string_view what, int32_t columns) {
  const Format& format = recipe_.wgrad_operands;
  if (has_expert_scale(format)) {
    Port operand = rows(rows_name, rows_format);
    append(fmt::format("transpose_{}", what),
           Transpose{.local_experts = layer_.local_experts,
                     .columns = columns,
                     .format = rows_format.dtype,
                     .keeps_bytes = true},
           with_groups({codes("input", rows_name, rows_format), column_starts("output_offs")}),
           {codes("output", name, format)});
    operand.role = std::move(role);
    operand.tensor = data_name(name, format);
    return operand;
  }
  if (format.is_recovered) {
    Port operand = cast_operand(rows_name, name, what, columns);
    operand.role = std::move(role);
    return operand;
  }
  const bool takes_codes = has_scales(format) && !is_cast_from_values(format);
  Port operand = rows(rows_name, takes_codes ? kRows1x128 : Format{});
  if (format.scale == ScaleOf::kColumn) {
    cast_columns(what, name, {.local_experts = layer_.local_experts, .columns = columns}, format,
                 with_groups({operand}), column_starts("output_offs"));
    operand = port("", name, format);
  } else if (has_scales(format)) {
    const std::vector<Port> reads = with_groups({operand, column_starts("output_offs")});
    const std::vector<Port> writes = {port("output", name, format)};
    if (takes_codes)
      append(fmt::format("transpose_{}", what),
             Transpose{.local_experts = layer_.local_experts, .columns = columns}, reads, writes);
    else
      append(fmt::format("quantize_columns_{}", what),
             QuantizeColumns{
                 .local_experts = layer_.local_experts, .columns = columns, .format = format},
             reads, writes);
    operand = port("", name, format);
  }
  operand.role = std::move(role);
  return operand;
}

template <typename Append>
void LayerGraphBuilder::for_each_mode(const Append& append_in) {
  append_in(GradientMode::kOverwrite, "");
  if (layer_.fuse_wgrad_accumulation) append_in(GradientMode::kAdd, "_add");
}

void LayerGraphBuilder::wgrad(std::string_view name, ContractionGroupedGemmSpec problem,
                              const Port& a, const Port& b,
                              const std::vector<std::string>& outputs) {
  problem.scales = gradient_scales(recipe_.wgrad_operands);
  problem.has_bf16_operands = problem.scales == GradientScales::kTensor &&
                              stored_dtype(recipe_.wgrad_operands) == DType::kBF16;
  problem.is_a_e5m2 =
      problem.scales == GradientScales::kTensor && recipe_.gradients.dtype == DType::kF8E5M2;
  if (recipe_.is_backward_fast) problem.accumulation = GemmAccumulation::kFast;
  problem.local_experts = layer_.local_experts;
  std::vector<Port> writes = {port("d", outputs.front())};
  if (problem.is_separate) writes.push_back(port("d_up", outputs.back()));
  for_each_mode([&](GradientMode mode, std::string_view end) {
    problem.output = gradient_output(layer_.wgrad_dtype, mode);
    append(fmt::format("{}{}", name, end), Wgrad{problem},
           {a, b, port("counts", "counts"), column_starts("offs")}, writes)
        .gradient_mode = mode;
  });
}

void LayerGraphBuilder::fc2_wgrad() {
  const Port a =
      wgrad_operand("a", "grad_permuted", recipe_.gradients, "grad_colwise", "grad", layer_.hidden);
  const Port b =
      wgrad_operand("b", "act", recipe_.activations, "act_colwise", "act", layer_.intermediate);
  wgrad("gemm_fc2_wgrad", {.rows = layer_.hidden, .n = layer_.intermediate}, a, b, {"dw2"});
}

void LayerGraphBuilder::fc1_wgrad() {
  const int32_t padded = wgrad_intermediate(layer_);
  const int32_t operand_rows = w1_sections(layer_) * padded;
  const Port a = wgrad_operand("a", "dh1", recipe_.gradients, "dh1_colwise", "dh1", operand_rows);
  const Port b = wgrad_operand("b", "permuted", recipe_.tokens, "x_colwise", "x", layer_.hidden);
  ContractionGroupedGemmSpec problem{.rows = operand_rows,
                                     .is_interleaved = is_interleaved() && !has_interleaved_h1(),
                                     .is_separate = has_separate_gate_up(),
                                     .n = layer_.hidden};
  if (padded != layer_.intermediate || problem.is_interleaved || problem.is_separate) {
    problem.sections = 2;
    problem.section_rows = layer_.intermediate;
  }
  wgrad("gemm_fc1_wgrad", problem, a, b, tensors_of(layer_, Gradient::kDw1));
}

void LayerGraphBuilder::fc2_bias_grad() {
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

// In bf16 the columns of dh1 have the order of b1, so they form a single section, unless columns
// lie between gate and up.
void LayerGraphBuilder::fc1_bias_grad() {
  const bool has_sections = has_scales(recipe_.gradients) || has_separate_gate_up();
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

}  // namespace moejit::compiler
