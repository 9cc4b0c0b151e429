// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/kernel_parts.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

std::string data_of(const Layer& layer, std::string_view name) {
  return is_quantized(layer) ? fmt::format("{}_q", name) : std::string(name);
}

std::string scales_of(const Layer& layer, std::string_view name) {
  return is_quantized(layer) ? fmt::format("{}_scale_inv", name) : std::string();
}

bool has_interleaved_h1(const Layer& layer) {
  return !is_quantized(layer) && layer.gate_up_layout == GateUpLayout::kInterleaved;
}

DType topk_ids_dtype(const Layer& layer) {
  return layer.topk_ids_dtype == TopkIdsDtype::kI64 ? DType::kI64 : DType::kI32;
}

DType topk_probs_dtype(const Layer& layer) {
  return layer.topk_probs_dtype == TopkProbsDtype::kBf16 ? DType::kBF16 : DType::kF32;
}

float smallest_amax(const Layer& layer) { return is_quantized(layer) ? kActivationEpsilon : 0.0f; }

QuantizeStage quantize_stage(const Layer& layer) {
  if (!is_quantized(layer)) return QuantizeStage::kNone;
  return layer.scale_sharing_k == 2 ? QuantizeStage::k1x128Pairs : QuantizeStage::k1x128;
}

namespace {

// Threads and segments in flight of the row chains are the fastest of those measured on an H200
// with 4096 tokens, top-8 of 256, H 7168, I 2048.

KernelPlan route(const Layer& layer, const Dataflow& flow, const Target& target) {
  // Each warp has a histogram over the experts, and each CTA two more.
  const int32_t histogram_bytes = 4 * layer.local_experts;
  const int64_t ids = layer.max_tokens * layer.top_k;
  const int64_t useful = std::clamp<int64_t>((ids + 31) / 32, 1, 32);
  const int32_t fitting = target.shared_memory_bytes / histogram_bytes - 2;
  const int32_t warps = static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, useful));
  const bool has_offs_of_columns = has_colwise_offs(layer) && flow.reads("colwise_offs");
  KernelPlan kernel{
      .spec = RouteSpec{.local_experts = layer.local_experts,
                        .top_k = layer.top_k,
                        .splits_alignment = layer.splits_alignment,
                        .has_colwise_offs = has_offs_of_columns,
                        .warps = warps,
                        .topk_ids = topk_ids_dtype(layer),
                        .ignores_foreign = layer.foreign_experts == ForeignExperts::kIgnore},
      .arguments = {{"topk_ids", "topk_ids"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"row_map", "row_map"},
                    {"status", "status"}},
      .reasons = {fmt::format(
          "each CTA counts all ids and places a part of them, {} warps at a time: one launch, no "
          "barrier between CTAs, stable order",
          warps)},
  };
  if (has_offs_of_columns) {
    kernel.arguments.push_back({"colwise_offs", "colwise_offs"});
    kernel.reasons.emplace_back(
        "groups of columns start at multiples of 128 in wgrad's operands, groups of rows do not");
  }
  if (has_backward(layer)) kernel.arguments.push_back({"saved_tokens", "saved_tokens"});
  return kernel;
}

KernelPlan activation(const Layer& layer) {
  KernelPlan kernel{
      .spec = RowChainSpec{.load = has_gate(layer.activation) ? LoadStage::kGatedRows
                                                              : LoadStage::kUpRows,
                           .transform = TransformStage::kActivationProbability,
                           .quantize = quantize_stage(layer),
                           .store = StoreStage::kGroupedRows,
                           .columns = layer.intermediate,
                           .local_experts = layer.local_experts,
                           .epsilon = smallest_amax(layer),
                           .segments_in_flight = 2,
                           .is_interleaved = has_interleaved_h1(layer),
                           .activation = layer.activation},
      .arguments = {{"input", "h1"},
                    {"probs", "permuted_probs"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output", data_of(layer, "act")}},
      .reasons = {"the routing probability is applied here, so unpermute is a plain sum",
                  "a kernel of its own, which reads h1 again"},
  };
  if (is_quantized(layer)) kernel.arguments.push_back({"output_scale_inv", "act_scale_inv"});
  if (has_interleaved_h1(layer)) kernel.reasons.emplace_back(kInterleavedH1Reason);
  return kernel;
}

KernelPlan unpermute(const Layer& layer, std::string_view rows, std::string_view sums) {
  return {
      .spec = RowChainSpec{.load = LoadStage::kCombinedRows,
                           .quantize = QuantizeStage::kNone,
                           .columns = layer.hidden,
                           .top_k = layer.top_k},
      .arguments = {{"input", std::string(rows)},
                    {"row_map", "row_map"},
                    {"output", std::string(sums)}},
      .reasons = {"fp32 sum in descending row order: the same bits for any batch"},
  };
}

std::string tile_kind_reason(const Layer& layer) {
  const int64_t rows = mean_rows(layer);
  if (rows <= kMostSwappedRows)
    return fmt::format(
        "swapped tiles: {} tokens give an expert {} rows in the mean, no more than {}",
        layer.max_tokens, rows, kMostSwappedRows);
  return fmt::format(
      "tiles of 128 rows: {} tokens give an expert {} rows in the mean, more than {}",
      layer.max_tokens, rows, kMostSwappedRows);
}

}  // namespace

KernelPlan grouped_gemm(const Layer& layer, GroupedGemmSpec problem, std::string_view a,
                        std::string_view b, std::string_view d, std::string_view bias) {
  problem.local_experts = layer.local_experts;
  if (!is_quantized(layer)) {
    problem.operands = DType::kBF16;
    problem.scales = GemmScales::kNone;
  }
  // A token goes to an expert once.
  const bool is_swapped = may_be_swapped(problem) && mean_rows(layer) <= kMostSwappedRows;
  const GroupedGemmSpec spec =
      is_swapped ? choose_swapped_tiles(problem, layer.max_tokens) : choose_tiles(problem);
  KernelPlan kernel = grouped_gemm_kernel(problem, spec, layer.max_permuted_rows,
                                          {.a = data_of(layer, a),
                                           .b = data_of(layer, b),
                                           .d = std::string(d),
                                           .a_scale_inv = scales_of(layer, a),
                                           .b_scale_inv = scales_of(layer, b),
                                           .probs = "permuted_probs",
                                           .bias = std::string(bias)});
  if (may_be_swapped(problem))
    kernel.reasons.insert(kernel.reasons.begin(), tile_kind_reason(layer));
  return kernel;
}

namespace {

KernelPlan gemm_fc1_activation_quantize(const Layer& layer, Phase phase, const Dataflow& flow,
                                        const PlanOptions& options) {
  // Backward reads h1, which the forward pass leaves it or the backward pass makes again.
  const bool is_read = phase == Phase::kBackward ? flow.reads("h1") : flow.saves("h1");
  const GroupedGemmSpec problem{.epilogue = options.keep_intermediates || is_read
                                                ? GemmEpilogue::kStoreAndActivationQuantize
                                                : GemmEpilogue::kActivationQuantize,
                                .local_experts = layer.local_experts,
                                .sections = 2,
                                .section_n = layer.intermediate,
                                .k = layer.hidden,
                                .epsilon = kActivationEpsilon,
                                .activation = layer.activation};
  KernelPlan kernel = grouped_gemm_kernel(problem, choose_tiles(problem), layer.max_permuted_rows,
                                          {.a = "permuted_q",
                                           .b = "w1_q",
                                           .d = "h1",
                                           .q = "act_q",
                                           .a_scale_inv = "permuted_scale_inv",
                                           .b_scale_inv = "w1_scale_inv",
                                           .q_scale_inv = "act_scale_inv",
                                           .probs = "permuted_probs"});
  kernel.reasons.insert(kernel.reasons.begin(), tile_kind_reason(layer));
  if (stores_result(problem))
    kernel.reasons.emplace_back(is_read ? "h1 is written too because backward reads it"
                                        : "h1 is written too because intermediates are kept");
  kernel.reasons.emplace_back(
      "gate and up are rounded to bf16 before they are activated: the bits of h1 and a kernel that "
      "reads it");
  kernel.reasons.emplace_back(
      "the routing probability is applied here, so unpermute is a plain sum");
  return kernel;
}

// `spec` says what matrices look like.
KernelPlan quantize_weights(const Layer& layer, const Dataflow& flow, TileChainSpec spec,
                            std::string_view name) {
  spec.tiles_per_scale = layer.scale_sharing_k;
  spec.writes_colwise = flow.reads(fmt::format("{}_colwise", name));
  spec.threads = 256 * layer.scale_sharing_k;  // the same for each to hold
  KernelPlan kernel{
      .spec = spec,
      .arguments = {{"input", std::string(name)},
                    {"output", fmt::format("{}_q", name)},
                    {"output_scale_inv", fmt::format("{}_scale_inv", name)},
                    {"skip", "skip_update"}},
      .reasons = {"all experts in one launch, one scale per 128x128 tile"},
  };
  if (spec.writes_colwise) {
    kernel.arguments.push_back({"output_colwise", fmt::format("{}_colwise_q", name)});
    kernel.arguments.push_back(
        {"output_colwise_scale_inv", fmt::format("{}_colwise_scale_inv", name)});
    kernel.reasons.emplace_back("both orientations from one read: dgrad multiplies with columns");
  }
  if (spec.is_interleaved)
    kernel.reasons.emplace_back(
        "rows of gate and up, which alternate, are sorted on the way: GEMMs have all of gate "
        "first");
  return kernel;
}

KernelPlan gemm_fc1(const Layer& layer) {
  GroupedGemmSpec problem{.sections = w1_sections(layer),
                          .section_n = layer.intermediate,
                          .k = layer.hidden,
                          .blocks_per_promotion = layer.scale_sharing_k};
  if (layer.biases) {
    problem.bias = GemmBias::kColumns;
    problem.has_interleaved_bias =
        is_quantized(layer) && layer.gate_up_layout == GateUpLayout::kInterleaved;
  }
  return grouped_gemm(layer, problem, "permuted", "w1", "h1", "b1");
}

// The probability is in act already, but not in b2.
KernelPlan gemm_fc2(const Layer& layer) {
  return grouped_gemm(layer,
                      {.section_n = layer.hidden,
                       .k = layer.intermediate,
                       .blocks_per_promotion = layer.scale_sharing_k,
                       .bias = layer.biases ? GemmBias::kColumnsTimesProb : GemmBias::kNone},
                      "act", "w2", "h2", "b2");
}

KernelPlan kernel_for(const Step& step, const Layer& layer, const Dataflow& flow,
                      const Target& target, const PlanOptions& options) {
  switch (step.operation) {
    case Operation::kQuantizeW1:
      return quantize_weights(
          layer, flow,
          {.sections = w1_sections(layer),
           .section_rows = layer.intermediate,
           .columns = layer.hidden,
           .is_interleaved = layer.gate_up_layout == GateUpLayout::kInterleaved},
          "w1");
    case Operation::kQuantizeW2:
      return quantize_weights(layer, flow,
                              {.section_rows = layer.hidden, .columns = layer.intermediate}, "w2");
    case Operation::kQuantize: return quantize(layer, rows_of_x(layer, flow));
    case Operation::kRoute: return route(layer, flow, target);
    case Operation::kPermutePad: return permute_pad(layer, rows_of_x(layer, flow));
    case Operation::kQuantizePermutePad:
      return quantize_permute_pad(layer, rows_of_x(layer, flow), options);
    case Operation::kGemmFc1: return gemm_fc1(layer);
    case Operation::kActivation:
    case Operation::kActivationQuantize: return activation(layer);
    case Operation::kGemmFc1ActivationQuantize:
      return gemm_fc1_activation_quantize(layer, step.phase, flow, options);
    case Operation::kGemmFc2: return gemm_fc2(layer);
    case Operation::kUnpermute: return unpermute(layer, "h2", "y");
    case Operation::kUnpermuteDx: return unpermute(layer, "dx_permuted", "dx");
    default: return make_backward_kernel(step.operation, layer, flow, options);
  }
}

}  // namespace

KernelPlan make_kernel(const Step& step, const Layer& layer, const Dataflow& flow,
                       const Target& target, const PlanOptions& options) {
  KernelPlan kernel = kernel_for(step, layer, flow, target, options);
  kernel.operation = to_string(step.operation);
  kernel.phase = step.phase;
  kernel.half = step.half;
  if (step.phase == Phase::kBackward) {
    kernel.arguments.push_back({"saved_tokens", "saved_tokens"});
    kernel.arguments.push_back({"tokens_status", "status"});
  }
  if (options.measure_gemms && is_gemm(step.operation))
    kernel.arguments.push_back({"elapsed", elapsed_tensor(step)});
  return kernel;
}

}  // namespace moejit::compiler
