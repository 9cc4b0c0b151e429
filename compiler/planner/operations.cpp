// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations.h"

#include "compiler/planner/dataflow.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kQuantizeW1: return "quantize_w1";
    case Operation::kQuantizeW2: return "quantize_w2";
    case Operation::kQuantize: return "quantize";
    case Operation::kRoute: return "route";
    case Operation::kPermutePad: return "permute_pad";
    case Operation::kQuantizePermutePad: return "quantize_permute_pad";
    case Operation::kGemmFc1: return "gemm_fc1";
    case Operation::kActivation: return "activation";
    case Operation::kActivationQuantize: return "activation_quantize";
    case Operation::kGemmFc1ActivationQuantize: return "gemm_fc1_activation_quantize";
    case Operation::kGemmFc2: return "gemm_fc2";
    case Operation::kUnpermute: return "unpermute";
    case Operation::kQuantizeDy: return "quantize_dy";
    case Operation::kPermutePadGrad: return "permute_pad_grad";
    case Operation::kQuantizePermutePadGrad: return "quantize_permute_pad_grad";
    case Operation::kGemmFc2Dgrad: return "gemm_fc2_dgrad";
    case Operation::kTransposeGrad: return "transpose_grad";
    case Operation::kPermuteTransposeGrad: return "permute_transpose_grad";
    case Operation::kTransposeAct: return "transpose_act";
    case Operation::kGemmFc2Wgrad: return "gemm_fc2_wgrad";
    case Operation::kGemmFc2WgradAdd: return "gemm_fc2_wgrad_add";
    case Operation::kActivationBackward: return "activation_backward";
    case Operation::kActivationBackwardQuantize: return "activation_backward_quantize";
    case Operation::kActivationBackwardQuantizeTranspose:
      return "activation_backward_quantize_transpose";
    case Operation::kActivationDprobs: return "activation_dprobs";
    case Operation::kGemmFc1Dgrad: return "gemm_fc1_dgrad";
    case Operation::kTransposeDh1: return "transpose_dh1";
    case Operation::kTransposeX: return "transpose_x";
    case Operation::kPermuteTransposeX: return "permute_transpose_x";
    case Operation::kGemmFc1Wgrad: return "gemm_fc1_wgrad";
    case Operation::kGemmFc1WgradAdd: return "gemm_fc1_wgrad_add";
    case Operation::kUnpermuteGrad: return "unpermute_grad";
    case Operation::kUnpermuteDx: return "unpermute_dx";
    case Operation::kUnpermuteDprobs: return "unpermute_dprobs";
    case Operation::kBiasDprobs: return "bias_dprobs";
    case Operation::kFc2BiasGrad: return "fc2_bias_grad";
    case Operation::kFc2BiasGradAdd: return "fc2_bias_grad_add";
    case Operation::kFc1BiasGrad: return "fc1_bias_grad";
    case Operation::kFc1BiasGradAdd: return "fc1_bias_grad_add";
  }
  return "unknown";
}

bool is_gemm(Operation operation) {
  switch (operation) {
    case Operation::kGemmFc1:
    case Operation::kGemmFc1ActivationQuantize:
    case Operation::kGemmFc2:
    case Operation::kGemmFc2Dgrad:
    case Operation::kGemmFc2Wgrad:
    case Operation::kGemmFc2WgradAdd:
    case Operation::kGemmFc1Dgrad:
    case Operation::kGemmFc1Wgrad:
    case Operation::kGemmFc1WgradAdd: return true;
    default: return false;
  }
}

bool has_colwise_offs(const Layer& layer) {
  return has_backward(layer) && is_quantized(layer) && layer.splits_alignment % 128 != 0;
}

int64_t routed_rows(const Layer& layer) {
  return std::min(layer.max_tokens * layer.top_k, layer.max_permuted_rows);
}

namespace {

// Bytes a column that are not moved if both transposes gather: tokens are read instead of permuted
// rows. Without dispatch x_q and dy_q are written for that, and read. With recomputation x is
// permuted once more, but the permuted rows need not be saved, which is what it is for.
int64_t bytes_not_moved(const Layer& layer) {
  const int64_t tokens = layer.max_tokens;
  const int64_t written = layer.dispatch == Dispatch::kNone ? 2 * tokens : 0;
  return 2 * (routed_rows(layer) - tokens) - written;
}

}  // namespace

bool gathers_tokens(const Layer& layer) {
  if (!has_backward(layer) || !is_quantized(layer) || !layer.fuse_transpose) return false;
  if (layer.recompute == Recompute::kMoeExpert) return routed_rows(layer) > layer.max_tokens;
  return bytes_not_moved(layer) >= 0;  // at no more traffic, less is saved
}

namespace {

// Pad rows are a tile's last ones.
bool has_pads_in_tiles(const Layer& layer) {
  return layer.splits_alignment % 128 == 0 || 128 % layer.splits_alignment == 0;
}

}  // namespace

bool transposes_activation(const Layer& layer) {
  using enum Gradient;
  const bool has_h1 = computes(layer, kDx) || computes(layer, kDprobs) || computes(layer, kDw1) ||
                      computes(layer, kDb1);
  return computes(layer, kDw2) && has_h1 && is_quantized(layer) &&
         layer.fuse_activation_transpose && has_gate(layer.activation) &&
         layer.scale_sharing_k == 1 && has_pads_in_tiles(layer);
}

bool contains(const std::vector<Step>& steps, Operation operation) {
  return std::ranges::find(steps, operation, &Step::operation) != steps.end();
}

std::string elapsed_tensor(const Step& step) {
  const bool is_repeated =
      step.phase == Phase::kBackward && (step.operation == Operation::kGemmFc1 ||
                                         step.operation == Operation::kGemmFc1ActivationQuantize);
  return fmt::format("{}{}_elapsed", is_repeated ? "recomputed_" : "", to_string(step.operation));
}

namespace {

void add_steps(std::vector<Step>& steps, Phase phase, std::initializer_list<Operation> operations) {
  for (const Operation operation : operations) steps.push_back({phase, operation});
}

// Each gradient is used up before the next one is made, so that they can share memory.
std::vector<Step> quantized_steps(const Layer& layer) {
  using enum Operation;
  std::vector<Step> steps;
  add_steps(steps, Phase::kWeights, {kQuantizeW1, kQuantizeW2});
  add_steps(steps, Phase::kForward,
            {kQuantize, kRoute, kPermutePad, kGemmFc1, kActivationQuantize, kGemmFc2, kUnpermute});
  if (!has_backward(layer)) return steps;
  if (layer.recompute == Recompute::kMoeExpert)
    add_steps(steps, Phase::kBackward, {kGemmFc1, kActivationQuantize});
  add_steps(steps, Phase::kBackward,
            {kQuantizeDy, kPermutePadGrad, kGemmFc2Dgrad, kTransposeGrad, kTransposeAct,
             kGemmFc2Wgrad, kGemmFc2WgradAdd, kActivationBackwardQuantize, kTransposeDh1,
             kTransposeX, kGemmFc1Wgrad, kGemmFc1WgradAdd, kGemmFc1Dgrad, kUnpermuteGrad});
  return steps;
}

// Weights and tokens are multiplied as they come, along whichever dimension it takes.
std::vector<Step> bf16_steps(const Layer& layer) {
  using enum Operation;
  std::vector<Step> steps;
  add_steps(steps, Phase::kForward,
            {kRoute, kPermutePad, kGemmFc1, kActivation, kGemmFc2, kUnpermute});
  if (!has_backward(layer)) return steps;
  if (layer.recompute == Recompute::kMoeExpert)
    add_steps(steps, Phase::kBackward, {kGemmFc1, kActivation});
  add_steps(steps, Phase::kBackward,
            {kPermutePadGrad, kGemmFc2Dgrad, kGemmFc2Wgrad, kGemmFc2WgradAdd, kActivationBackward,
             kGemmFc1Wgrad, kGemmFc1WgradAdd, kGemmFc1Dgrad, kUnpermuteGrad});
  return steps;
}

// Adds the steps of biases, each behind the operation that has made what it reads.
void add_bias_steps(std::vector<Step>& steps) {
  using enum Operation;
  const auto insert_behind = [&](Operation operation, std::initializer_list<Operation> added) {
    const auto found = std::ranges::find_if(steps, [&](const Step& step) {
      return step.phase == Phase::kBackward && step.operation == operation;
    });
    std::vector<Step> behind;
    add_steps(behind, Phase::kBackward, added);
    steps.insert(found + 1, behind.begin(), behind.end());
  };
  insert_behind(kPermutePadGrad, {kBiasDprobs, kFc2BiasGrad, kFc2BiasGradAdd});
  insert_behind(
      contains(steps, kActivationBackward) ? kActivationBackward : kActivationBackwardQuantize,
      {kFc1BiasGrad, kFc1BiasGradAdd});
}

bool adds(Operation operation) {
  using enum Operation;
  return operation == kGemmFc1WgradAdd || operation == kGemmFc2WgradAdd ||
         operation == kFc1BiasGradAdd || operation == kFc2BiasGradAdd;
}

}  // namespace

std::vector<Step> layer_steps(const Layer& layer) {
  std::vector<Step> steps = is_quantized(layer) ? quantized_steps(layer) : bf16_steps(layer);
  if (layer.biases && has_backward(layer)) add_bias_steps(steps);
  if (!adds_gradients(layer))
    std::erase_if(steps, [](const Step& step) { return adds(step.operation); });
  return needed_steps(steps, layer);
}

}  // namespace moejit::compiler
