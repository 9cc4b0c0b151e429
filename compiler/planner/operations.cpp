// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations.h"

#include "compiler/planner/grouped_gemm.h"

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
    case Operation::kGemmFc1Dgrad: return "gemm_fc1_dgrad";
    case Operation::kTransposeDh1: return "transpose_dh1";
    case Operation::kTransposeX: return "transpose_x";
    case Operation::kPermuteTransposeX: return "permute_transpose_x";
    case Operation::kGemmFc1Wgrad: return "gemm_fc1_wgrad";
    case Operation::kGemmFc1WgradAdd: return "gemm_fc1_wgrad_add";
    case Operation::kUnpermuteGrad: return "unpermute_grad";
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

namespace {

int64_t routed_rows(const Layer& layer) {
  return std::min(layer.max_tokens * layer.top_k, layer.max_permuted_rows);
}

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
  return has_backward(layer) && is_quantized(layer) && layer.fuse_activation_transpose &&
         has_gate(layer.activation) && layer.scale_sharing_k == 1 && has_pads_in_tiles(layer);
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

// Those of biases, behind the operation that has made what they read.
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

}  // namespace

std::vector<Step> layer_steps(const Layer& layer) {
  std::vector<Step> steps = is_quantized(layer) ? quantized_steps(layer) : bf16_steps(layer);
  if (layer.biases && has_backward(layer)) add_bias_steps(steps);
  return steps;
}

namespace {

// Where a phase has both, puts `joined` in the place of `second`, and leaves `first` out.
void join(std::vector<Step>& steps, Operation first, Operation second, Operation joined) {
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    const auto is_first = [&](const Step& step) {
      return step.phase == phase && step.operation == first;
    };
    if (std::erase_if(steps, is_first) == 0) continue;
    for (Step& step : steps)
      if (step.phase == phase && step.operation == second) step.operation = joined;
  }
}

void fuse_quantize(std::vector<Step>& steps, const Layer& layer,
                   std::vector<std::string>& reasons) {
  if (!is_quantized(layer)) {
    reasons.emplace_back("nothing is quantised: permute_pad moves rows of x and dy as they are");
    return;
  }
  if (layer.dispatch != Dispatch::kNone) {
    reasons.push_back(fmt::format(
        "quantize and permute_pad stay apart: x_q is what dispatch \"{}\" sends between ranks",
        to_string(layer.dispatch)));
    return;
  }
  reasons.push_back(fmt::format(
      "quantize and permute_pad are one kernel: nothing is dispatched in between, and x_q "
      "[T, {0}] is neither written nor read, which saves {1} bytes a token",
      layer.hidden, 2 * layer.hidden));
  using enum Operation;
  join(steps, kQuantize, kPermutePad, kQuantizePermutePad);
  join(steps, kQuantizeDy, kPermutePadGrad, kQuantizePermutePadGrad);
}

void replace(std::vector<Step>& steps, Operation one, Operation other) {
  for (Step& step : steps)
    if (step.operation == one) step.operation = other;
}

void fuse_transpose(std::vector<Step>& steps, const Layer& layer,
                    std::vector<std::string>& reasons) {
  if (!has_backward(layer) || !is_quantized(layer)) return;
  if (!gathers_tokens(layer)) {
    reasons.push_back(
        layer.fuse_transpose
            ? fmt::format(
                  "permute and transpose stay apart: with {} rows of {} tokens in a largest call, "
                  "gathering the rows would move more bytes than it saves",
                  routed_rows(layer), layer.max_tokens)
            : std::string("permute and transpose stay apart: \"fuse_transpose\" is false"));
    return;
  }
  using enum Operation;
  replace(steps, kTransposeX, kPermuteTransposeX);
  replace(steps, kTransposeGrad, kPermuteTransposeGrad);
  reasons.push_back(fmt::format(
      "permute and transpose are one kernel: wgrad's operands are made of x_q and dy_q [T, {0}], "
      "gathered, and x_q is saved instead of permuted_q [P, {0}]",
      layer.hidden));
  if (layer.recompute != Recompute::kMoeExpert) return;
  const auto backward = std::ranges::find(steps, Phase::kBackward, &Step::phase);
  steps.insert(backward, {Phase::kBackward, kPermutePad});
  reasons.emplace_back("x_q is permuted again for the recomputed gemm_fc1");
}

void fuse_activation_transpose(std::vector<Step>& steps, const Layer& layer,
                               std::vector<std::string>& reasons) {
  if (!has_backward(layer) || !is_quantized(layer)) return;
  if (!transposes_activation(layer)) {
    std::string reason = "\"fuse_activation_transpose\" is false";
    if (layer.fuse_activation_transpose && !has_gate(layer.activation))
      reason = "the activation has no gate";
    else if (layer.fuse_activation_transpose && layer.scale_sharing_k > 1)
      reason =
          fmt::format("{} neighbouring blocks of dh1 share a scale, and lie in tiles of {} CTAs",
                      layer.scale_sharing_k, layer.scale_sharing_k);
    else if (layer.fuse_activation_transpose)
      reason = fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                           layer.splits_alignment);
    reasons.push_back(fmt::format(
        "the activation's gradient and the transposes of dh1 and act stay apart: {}", reason));
    return;
  }
  using enum Operation;
  std::erase_if(steps, [](const Step& step) {
    return step.operation == kTransposeAct || step.operation == kTransposeDh1 ||
           step.operation == kActivationBackwardQuantize ||
           (step.phase == Phase::kBackward && step.operation == kActivationQuantize);
  });
  const auto dgrad = std::ranges::find(steps, kGemmFc2Dgrad, &Step::operation);
  steps.insert(dgrad + 1, {Phase::kBackward, kActivationBackwardQuantizeTranspose});
  reasons.push_back(
      fmt::format("the activation's gradient and the transposes of dh1 and act are one kernel: "
                  "dh1_q [P, {}] and "
                  "act_q [P, {}] are not read again, and act_q is not {}",
                  2 * layer.intermediate, layer.intermediate,
                  layer.recompute == Recompute::kMoeExpert ? "recomputed" : "saved"));
}

// Whether the forward pass leaves h1 for the backward pass.
bool saves_h1(const Layer& layer) {
  return has_backward(layer) && layer.recompute == Recompute::kNone;
}

void fuse_activation(std::vector<Step>& steps, const Layer& layer, const PlanOptions& options,
                     std::vector<std::string>& reasons) {
  if (!is_quantized(layer)) {
    reasons.emplace_back(
        "gemm_fc1 and activation stay apart: the epilogue that activates quantises too");
    return;
  }
  if (!layer.fuse_activation) {
    reasons.emplace_back(
        "gemm_fc1 and activation_quantize stay apart: \"fuse_activation\" is false");
    return;
  }
  if (!has_gate(layer.activation)) {
    reasons.emplace_back(
        "gemm_fc1 and activation_quantize stay apart: tiles that are activated in registers have "
        "gate and up, and there is no gate");
    return;
  }
  if (layer.biases) {
    reasons.emplace_back(
        "gemm_fc1 and activation_quantize stay apart: sums of gate and up leave no registers for "
        "b1");
    return;
  }
  if (layer.scale_sharing_k > 1) {
    reasons.push_back(
        fmt::format("gemm_fc1 and activation_quantize stay apart: {0} neighbouring blocks of act "
                    "share a scale, "
                    "and the tiles that compute them belong to {0} CTAs",
                    layer.scale_sharing_k));
    return;
  }
  if (mean_rows(layer) <= kMostSwappedRows) {
    reasons.push_back(fmt::format(
        "gemm_fc1 and activation_quantize stay apart: an expert has {} rows in the mean, for which "
        "tiles are swapped, and swapped tiles have the columns of a scale in two warpgroups",
        mean_rows(layer)));
    return;
  }
  const bool is_written = options.keep_intermediates || saves_h1(layer);
  reasons.push_back(fmt::format(
      "gemm_fc1 and activation_quantize are one kernel: gate and up are activated in registers, "
      "and h1 "
      "[P, {}] is {}, which saves {} bytes a row",
      2 * layer.intermediate,
      options.keep_intermediates ? "written because intermediates are kept, but not read"
      : is_written               ? "written because backward reads it, but not read"
                                 : "neither written nor read",
      (is_written ? 4 : 8) * layer.intermediate));
  using enum Operation;
  join(steps, kActivationQuantize, kGemmFc1, kGemmFc1ActivationQuantize);
}

}  // namespace

std::vector<Step> fuse_steps(const std::vector<Step>& steps, const Layer& layer,
                             const PlanOptions& options, std::vector<std::string>& reasons) {
  std::vector<Step> fused = steps;
  fuse_quantize(fused, layer, reasons);
  fuse_transpose(fused, layer, reasons);
  fuse_activation_transpose(fused, layer, reasons);
  fuse_activation(fused, layer, options, reasons);
  return fused;
}

}  // namespace moejit::compiler
