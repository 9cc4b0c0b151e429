// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/contraction_grouped_gemm.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/kernel_parts.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

int32_t scale_blocks(int32_t columns) { return (columns + 127) / 128; }

std::string colwise_offs(const Layer& layer) {
  return has_colwise_offs(layer) ? "colwise_offs" : "offs";
}

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

KernelPlan activation_backward_quantize(const Layer& layer) {
  return {
      .spec = RowChainSpec{.load = LoadStage::kGatedGradientRows,
                           .transform = TransformStage::kActivationBackward,
                           .store = StoreStage::kGroupedGatedRows,
                           .columns = layer.intermediate,
                           .local_experts = layer.local_experts,
                           .epsilon = kActivationEpsilon,
                           .threads = 128,
                           .segments_in_flight = 1},
      .arguments = {{"input", "h1"},
                    {"gradient", "dact"},
                    {"probs", "permuted_probs"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output", "dh1_q"},
                    {"output_scale_inv", "dh1_scale_inv"},
                    {"output_dprobs", "dprobs_blocks"}},
      .reasons = {"gradients of gate and up are quantised in registers",
                  "the gradient of a probability is added up by a fixed tree: the same bits in "
                  "every run"},
  };
}

// `a` is what the forward GEMM had on the right-hand side of its result, `b` what it multiplied.
KernelPlan wgrad(const Layer& layer, int32_t rows, int32_t columns, GradientMode mode,
                 std::string_view a, std::string_view b, std::string_view d) {
  const int64_t padded = gradient_columns(layer);
  const int64_t mean_columns =
      std::max<int64_t>(1, std::min(layer.max_tokens * layer.top_k, padded) / layer.local_experts);
  const ContractionGroupedGemmSpec problem{
      .output = mode == GradientMode::kAdd ? GradientOutput::kF32Add : GradientOutput::kF32,
      .local_experts = layer.local_experts,
      .rows = rows,
      .n = columns};
  const ContractionGroupedGemmSpec spec = choose_tiles(problem, mean_columns);
  const GemmTensors tensors{.a = fmt::format("{}_colwise_q", a),
                            .b = fmt::format("{}_colwise_q", b),
                            .d = std::string(d),
                            .a_scale_inv = fmt::format("{}_colwise_scale_inv", a),
                            .b_scale_inv = fmt::format("{}_colwise_scale_inv", b)};
  return {.gradient_mode = mode,
          .spec = spec,
          .arguments = {{"a_scale_inv", tensors.a_scale_inv},
                        {"b_scale_inv", tensors.b_scale_inv},
                        {"counts", "counts"},
                        {"offs", colwise_offs(layer)}},
          .tensor_maps = contraction_grouped_gemm_tensor_maps(spec, padded, tensors),
          .reasons = tile_reasons(spec, mean_columns)};
}

KernelPlan unpermute_grad(const Layer& layer) {
  return {
      .spec = RowChainSpec{.load = LoadStage::kCombinedRows,
                           .quantize = QuantizeStage::kNone,
                           .store = StoreStage::kRowsAndProbs,
                           .columns = layer.hidden,
                           .top_k = layer.top_k,
                           .threads = 128,
                           .segments_in_flight = 1,
                           .dprobs_columns = scale_blocks(layer.intermediate)},
      .arguments = {{"input", "dx_permuted"},
                    {"row_map", "row_map"},
                    {"output", "dx"},
                    {"dprobs_blocks", "dprobs_blocks"},
                    {"dprobs", "dprobs"}},
      .reasons = {"fp32 sum in descending row order: the same bits for any batch",
                  "the gradients of a token's probabilities are gathered on the way"},
  };
}

}  // namespace

KernelPlan make_backward_kernel(Operation operation, const Layer& layer,
                                const PlanOptions& options) {
  const int32_t hidden = layer.hidden, intermediate = layer.intermediate;
  using enum GradientMode;
  switch (operation) {
    case Operation::kQuantizeDy: return quantize(layer, rows_of_dy());
    case Operation::kPermutePadGrad: return permute_pad(layer, rows_of_dy());
    case Operation::kQuantizePermutePadGrad:
      return quantize_permute_pad(layer, rows_of_dy(), options);
    case Operation::kGemmFc2Dgrad:
      return grouped_gemm(layer,
                          {.local_experts = layer.local_experts,
                           .section_n = intermediate,
                           .k = hidden,
                           .blocks_per_promotion = 1},
                          "grad_permuted", "w2_colwise", "dact");
    case Operation::kTransposeGrad:
      return transpose(layer, hidden, "grad_permuted", "grad_colwise");
    case Operation::kTransposeAct: return transpose(layer, intermediate, "act", "act_colwise");
    case Operation::kGemmFc2Wgrad:
      return wgrad(layer, hidden, intermediate, kOverwrite, "grad", "act", "dw2");
    case Operation::kGemmFc2WgradAdd:
      return wgrad(layer, hidden, intermediate, kAdd, "grad", "act", "dw2");
    case Operation::kActivationBackwardQuantize: return activation_backward_quantize(layer);
    case Operation::kGemmFc1Dgrad:
      return grouped_gemm(layer,
                          {.local_experts = layer.local_experts,
                           .section_n = hidden,
                           .k = 2 * intermediate,
                           .blocks_per_promotion = 1},
                          "dh1", "w1_colwise", "dx_permuted");
    case Operation::kTransposeDh1: return transpose(layer, 2 * intermediate, "dh1", "dh1_colwise");
    case Operation::kTransposeX: return transpose(layer, hidden, "permuted", "x_colwise");
    case Operation::kGemmFc1Wgrad:
      return wgrad(layer, 2 * intermediate, hidden, kOverwrite, "dh1", "x", "dw1");
    case Operation::kGemmFc1WgradAdd:
      return wgrad(layer, 2 * intermediate, hidden, kAdd, "dh1", "x", "dw1");
    case Operation::kUnpermuteGrad: return unpermute_grad(layer);
    default: return {};
  }
}

}  // namespace moejit::compiler
