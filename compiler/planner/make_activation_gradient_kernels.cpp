// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/kernel_parts.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kDprobsReason =
    "the gradient of a probability is added up by a fixed tree: the same bits in every run";

}  // namespace

KernelPlan activation_backward(const Layer& layer, const Dataflow& flow) {
  const int32_t padded = padded_intermediate(layer);
  const bool is_gated = has_gate(layer.activation);
  KernelPlan kernel{
      .spec =
          RowChainSpec{
              .load = is_gated ? LoadStage::kGatedGradientRows : LoadStage::kUpGradientRows,
              .transform = TransformStage::kActivationBackward,
              .quantize = is_quantized(layer) ? QuantizeStage::k1x128 : QuantizeStage::kNone,
              .store = is_gated ? StoreStage::kGroupedGatedRows : StoreStage::kGroupedUpRows,
              .columns = layer.intermediate,
              .local_experts = layer.local_experts,
              .epsilon = smallest_amax(layer),
              .pitch = padded == layer.intermediate ? 0 : padded,
              .is_interleaved = has_interleaved_h1(layer),
              .activation = layer.activation},
      .arguments = {{"input", "h1"},
                    {"gradient", "dact"},
                    {"probs", "permuted_probs"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output", data_of(layer, "dh1")}},
      .reasons = {},
  };
  if (flow.reads("dprobs_blocks")) {
    kernel.arguments.push_back({"output_dprobs", "dprobs_blocks"});
    kernel.reasons.emplace_back(kDprobsReason);
  } else {
    std::get<RowChainSpec>(kernel.spec).tells_dprobs = false;
  }
  if (has_interleaved_h1(layer)) kernel.reasons.emplace_back(kInterleavedH1Reason);
  if (padded != layer.intermediate)
    kernel.reasons.push_back(fmt::format(
        "the {} columns of gate and up are filled up with zeros to {}: dgrad contracts over both, "
        "and no scale block may lie in two of them",
        layer.intermediate, padded));
  if (is_quantized(layer)) {
    kernel.arguments.push_back({"output_scale_inv", "dh1_scale_inv"});
    kernel.reasons.emplace_back(is_gated ? "gradients of gate and up are quantised in registers"
                                         : "gradients are quantised in registers");
  }
  return kernel;
}

KernelPlan activation_dprobs(const Layer& layer) {
  return {
      .spec = RowChainSpec{.load = has_gate(layer.activation) ? LoadStage::kGatedGradientRows
                                                              : LoadStage::kUpGradientRows,
                           .transform = TransformStage::kActivationBackward,
                           .quantize = QuantizeStage::kNone,
                           .store = StoreStage::kGroupedDprobs,
                           .columns = layer.intermediate,
                           .local_experts = layer.local_experts,
                           .is_interleaved = has_interleaved_h1(layer),
                           .activation = layer.activation},
      .arguments = {{"input", "h1"},
                    {"gradient", "dact"},
                    {"probs", "permuted_probs"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output_dprobs", "dprobs_blocks"}},
      .reasons = {std::string(kDprobsReason)},
  };
}

KernelPlan activation_backward_transpose(const Layer& layer, const Dataflow& flow,
                                         const PlanOptions& options) {
  GatedGradientSpec spec{.local_experts = layer.local_experts,
                         .columns = layer.intermediate,
                         .epsilon = smallest_amax(layer),
                         .stores_rows = options.keep_intermediates || flow.reads("dh1"),
                         .tells_dprobs = flow.reads("dprobs_blocks"),
                         .transposes_gradient = flow.reads("dh1_colwise"),
                         .activation = layer.activation};
  KernelPlan kernel{
      .spec = spec,
      .arguments = {{"input", "h1"},
                    {"gradient", "dact"},
                    {"probs", "permuted_probs"},
                    {"counts", "counts"},
                    {"offs", "offs"},
                    {"output_offs", colwise_offs(layer)}},
      .reasons = {},
  };
  const auto add = [&](std::initializer_list<KernelArgument> arguments) {
    kernel.arguments.insert(kernel.arguments.end(), arguments);
  };
  if (spec.stores_rows) add({{"output", "dh1_q"}, {"output_scale_inv", "dh1_scale_inv"}});
  if (spec.tells_dprobs) {
    add({{"output_dprobs", "dprobs_blocks"}});
    kernel.reasons.emplace_back(kDprobsReason);
  }
  if (spec.transposes_gradient)
    add({{"output_colwise", "dh1_colwise_q"},
         {"output_colwise_scale_inv", "dh1_colwise_scale_inv"}});
  add({{"act_colwise", "act_colwise_q"}, {"act_colwise_scale_inv", "act_colwise_scale_inv"}});
  kernel.reasons.emplace_back(
      "gradients of gate and up are quantised in registers, and transposed with the activation in "
      "shared memory: nothing is dequantised, and wgrad has one scale a tile");
  return kernel;
}

}  // namespace moejit::compiler
