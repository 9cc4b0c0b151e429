// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/contraction_grouped_gemm.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/kernel_parts.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

std::string colwise_offs(const Layer& layer) {
  return has_colwise_offs(layer) ? "colwise_offs" : "offs";
}

namespace {

int32_t scale_blocks(int32_t columns) { return (columns + 127) / 128; }

// Names of tensors without "_q" and "_scale_inv".
KernelPlan transpose(const Layer& layer, int32_t columns, std::string_view rows_name,
                     std::string_view columns_name) {
  return {
      .spec = TransposeSpec{.local_experts = layer.local_experts, .columns = columns},
      .arguments = {{"input", fmt::format("{}_q", rows_name)},
                    {"input_scale_inv", fmt::format("{}_scale_inv", rows_name)},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output_offs", colwise_offs(layer)},
                    {"output", fmt::format("{}_q", columns_name)},
                    {"output_scale_inv", fmt::format("{}_scale_inv", columns_name)}},
      .reasons = {"codes are shifted to the largest scale of their 128x128 tile: nothing is "
                  "dequantised, and wgrad has one scale a tile"},
  };
}

// Transposes the rows of tokens in the order in which they were permuted.
KernelPlan permute_transpose(const Layer& layer, std::string_view rows_name,
                             std::string_view columns_name, RowSource source) {
  KernelPlan kernel = transpose(layer, layer.hidden, rows_name, columns_name);
  std::get<TransposeSpec>(kernel.spec).source = source;
  kernel.arguments.push_back({"row_tokens", "row_tokens"});
  kernel.reasons.emplace_back(
      "each row is fetched from its token, which L2 holds for the other experts of the token");
  return kernel;
}

// `a` is what the forward GEMM had on the right-hand side of its result, `b` what it multiplied:
// their transposed copies, or in bf16 their rows as they are.
struct WgradOperands {
  std::string_view a, b;
  std::string_view a_rows, b_rows;
};

KernelPlan wgrad(const Layer& layer, ContractionGroupedGemmSpec problem, GradientMode mode,
                 const WgradOperands& operands, std::string_view d) {
  const int64_t padded =
      is_quantized(layer) ? gradient_columns(call_bounds(layer)) : layer.max_permuted_rows;
  const int64_t mean_columns =
      std::max<int64_t>(1, std::min(layer.max_tokens * layer.top_k, padded) / layer.local_experts);
  problem.scales = is_quantized(layer) ? GradientScales::kTile : GradientScales::kNone;
  problem.output = layer.wgrad_dtype == WgradDtype::kBf16 ? GradientOutput::kBf16
                   : mode == GradientMode::kAdd           ? GradientOutput::kF32Add
                                                          : GradientOutput::kF32;
  problem.local_experts = layer.local_experts;
  const ContractionGroupedGemmSpec spec = choose_tiles(problem, mean_columns);
  KernelPlan kernel{.gradient_mode = mode,
                    .spec = spec,
                    .arguments = {{"counts", "counts"}, {"offs", colwise_offs(layer)}},
                    .reasons = tile_reasons(spec, mean_columns)};
  GemmTensors tensors{
      .a = std::string(operands.a_rows), .b = std::string(operands.b_rows), .d = std::string(d)};
  if (is_quantized(layer)) {
    tensors.a = data_of(layer, operands.a);
    tensors.b = data_of(layer, operands.b);
    kernel.arguments.push_back({"a_scale_inv", scales_of(layer, operands.a)});
    kernel.arguments.push_back({"b_scale_inv", scales_of(layer, operands.b)});
  }
  kernel.tensor_maps = contraction_grouped_gemm_tensor_maps(spec, padded, tensors);
  return kernel;
}

KernelPlan fc2_wgrad(const Layer& layer, GradientMode mode) {
  return wgrad(
      layer, {.rows = layer.hidden, .n = layer.intermediate}, mode,
      {.a = "grad_colwise", .b = "act_colwise", .a_rows = "grad_permuted", .b_rows = "act"}, "dw2");
}

KernelPlan fc1_wgrad(const Layer& layer, GradientMode mode) {
  const int32_t padded = padded_intermediate(layer);
  ContractionGroupedGemmSpec problem{.rows = w1_sections(layer) * padded, .n = layer.hidden};
  problem.is_interleaved =
      is_quantized(layer) && layer.gate_up_layout == GateUpLayout::kInterleaved;
  if (padded != layer.intermediate || problem.is_interleaved) {
    problem.sections = 2;
    problem.section_rows = layer.intermediate;
  }
  return wgrad(layer, problem, mode,
               {.a = "dh1_colwise", .b = "x_colwise", .a_rows = "dh1", .b_rows = "permuted"},
               "dw1");
}

// dA = dD * B[e], contracted along the rows of the forward GEMM's B: of a transposed copy, or in
// bf16 of B itself.
KernelPlan dgrad(const Layer& layer, int32_t columns, int32_t k, std::string_view gradient,
                 std::string_view weights, std::string_view d) {
  const GroupedGemmSpec problem{
      .b_major = is_quantized(layer) ? Major::kK : Major::kMn, .section_n = columns, .k = k};
  const std::string b =
      is_quantized(layer) ? fmt::format("{}_colwise", weights) : std::string(weights);
  return grouped_gemm(layer, problem, gradient, b, d);
}

// Gradients of biases add up columns. `rows` is a name for data_of().
KernelPlan bias_grad(const Layer& layer, ColumnSumsSpec spec, GradientMode mode,
                     std::string_view rows, std::string_view sums) {
  spec.input = is_quantized(layer) ? DType::kF8E4M3 : DType::kBF16;
  spec.local_experts = layer.local_experts;
  spec.adds = mode == GradientMode::kAdd;
  KernelPlan kernel{.gradient_mode = mode,
                    .spec = spec,
                    .arguments = {{"input", data_of(layer, rows)},
                                  {"counts", "counts"},
                                  {"offs", "offs"},
                                  {"output", std::string(sums)}},
                    .reasons = {"rows are added up by a fixed tree: the same bits in every run"}};
  if (is_quantized(layer)) kernel.arguments.push_back({"input_scale_inv", scales_of(layer, rows)});
  if (spec.times_prob) kernel.arguments.push_back({"probs", "permuted_probs"});
  return kernel;
}

KernelPlan fc2_bias_grad(const Layer& layer, GradientMode mode) {
  return bias_grad(layer,
                   {.section_columns = layer.hidden, .pitch = layer.hidden, .times_prob = true},
                   mode, "grad_permuted", "db2");
}

KernelPlan fc1_bias_grad(const Layer& layer, GradientMode mode) {
  // In bf16 the columns of dh1 have the order of b1, whatever it is.
  if (!is_quantized(layer)) {
    const int32_t columns = w1_sections(layer) * layer.intermediate;
    return bias_grad(layer, {.section_columns = columns, .pitch = columns}, mode, "dh1", "db1");
  }
  return bias_grad(layer,
                   {.sections = w1_sections(layer),
                    .section_columns = layer.intermediate,
                    .pitch = padded_intermediate(layer),
                    .is_interleaved = layer.gate_up_layout == GateUpLayout::kInterleaved},
                   mode, "dh1", "db1");
}

KernelPlan bias_dprobs(const Layer& layer) {
  KernelPlan kernel{
      .spec = RowDotsSpec{.input = is_quantized(layer) ? DType::kF8E4M3 : DType::kBF16,
                          .local_experts = layer.local_experts,
                          .columns = layer.hidden},
      .arguments = {{"input", data_of(layer, "grad_permuted")},
                    {"bias", "b2"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output", "bias_dprobs"}},
      .reasons = {"b2 meets the routing probability, so its product with a row's gradient belongs "
                  "to that of the probability"}};
  if (is_quantized(layer))
    kernel.arguments.push_back({"input_scale_inv", scales_of(layer, "grad_permuted")});
  return kernel;
}

KernelPlan unpermute_grad(const Layer& layer) {
  KernelPlan kernel{
      .spec = RowChainSpec{.load = LoadStage::kCombinedRows,
                           .quantize = QuantizeStage::kNone,
                           .store = StoreStage::kRowsAndProbs,
                           .columns = layer.hidden,
                           .top_k = layer.top_k,
                           .dprobs_columns = scale_blocks(layer.intermediate),
                           .adds_bias_dprobs = layer.biases,
                           .probs = topk_probs_dtype(layer)},
      .arguments = {{"input", "dx_permuted"},
                    {"row_map", "row_map"},
                    {"output", "dx"},
                    {"dprobs_blocks", "dprobs_blocks"},
                    {"dprobs", "dprobs"}},
      .reasons = {"fp32 sum in descending row order: the same bits for any batch",
                  "the gradients of a token's probabilities are gathered on the way"},
  };
  if (layer.biases) kernel.arguments.push_back({"bias_dprobs", "bias_dprobs"});
  return kernel;
}

KernelPlan unpermute_dprobs(const Layer& layer) {
  KernelPlan kernel{
      .spec = UnpermuteDprobsSpec{.top_k = layer.top_k,
                                  .dprobs_columns = scale_blocks(layer.intermediate),
                                  .adds_bias_dprobs = layer.biases,
                                  .probs = topk_probs_dtype(layer)},
      .arguments = {{"row_map", "row_map"},
                    {"dprobs_blocks", "dprobs_blocks"},
                    {"dprobs", "dprobs"}},
      .reasons = {"nobody asks for dx, beside whose rows they would be gathered"},
  };
  if (layer.biases) kernel.arguments.push_back({"bias_dprobs", "bias_dprobs"});
  return kernel;
}

}  // namespace

KernelPlan make_backward_kernel(Operation operation, const Layer& layer, const Dataflow& flow,
                                const PlanOptions& options) {
  const int32_t hidden = layer.hidden, intermediate = layer.intermediate;
  const int32_t h1_columns = w1_sections(layer) * padded_intermediate(layer);
  switch (operation) {
    case Operation::kQuantizeDy: return quantize(layer, rows_of_dy(flow));
    case Operation::kPermutePadGrad: return permute_pad(layer, rows_of_dy(flow));
    case Operation::kQuantizePermutePadGrad:
      return quantize_permute_pad(layer, rows_of_dy(flow), options);
    case Operation::kGemmFc2Dgrad:
      return dgrad(layer, intermediate, hidden, "grad_permuted", "w2", "dact");
    case Operation::kTransposeGrad:
      return transpose(layer, hidden, "grad_permuted", "grad_colwise");
    case Operation::kPermuteTransposeGrad:
      return permute_transpose(layer, "dy", "grad_colwise", RowSource::kGatheredAll);
    case Operation::kTransposeAct: return transpose(layer, intermediate, "act", "act_colwise");
    case Operation::kGemmFc2Wgrad: return fc2_wgrad(layer, GradientMode::kOverwrite);
    case Operation::kGemmFc2WgradAdd: return fc2_wgrad(layer, GradientMode::kAdd);
    case Operation::kActivationBackward:
    case Operation::kActivationBackwardQuantize: return activation_backward(layer, flow);
    case Operation::kActivationBackwardQuantizeTranspose:
      return activation_backward_transpose(layer, flow, options);
    case Operation::kActivationDprobs: return activation_dprobs(layer);
    case Operation::kGemmFc1Dgrad:
      return dgrad(layer, hidden, h1_columns, "dh1", "w1", "dx_permuted");
    case Operation::kTransposeDh1: return transpose(layer, h1_columns, "dh1", "dh1_colwise");
    case Operation::kTransposeX: return transpose(layer, hidden, "permuted", "x_colwise");
    case Operation::kPermuteTransposeX:
      return permute_transpose(layer, "x", "x_colwise", RowSource::kGathered);
    case Operation::kGemmFc1Wgrad: return fc1_wgrad(layer, GradientMode::kOverwrite);
    case Operation::kGemmFc1WgradAdd: return fc1_wgrad(layer, GradientMode::kAdd);
    case Operation::kUnpermuteGrad: return unpermute_grad(layer);
    case Operation::kUnpermuteDprobs: return unpermute_dprobs(layer);
    case Operation::kBiasDprobs: return bias_dprobs(layer);
    case Operation::kFc2BiasGrad: return fc2_bias_grad(layer, GradientMode::kOverwrite);
    case Operation::kFc2BiasGradAdd: return fc2_bias_grad(layer, GradientMode::kAdd);
    case Operation::kFc1BiasGrad: return fc1_bias_grad(layer, GradientMode::kOverwrite);
    case Operation::kFc1BiasGradAdd: return fc1_bias_grad(layer, GradientMode::kAdd);
    default: return {};
  }
}

}  // namespace moejit::compiler
