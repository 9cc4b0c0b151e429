// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/dataflow.h"
#include "compiler/planner/grouped_gemm.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
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
      "[T, {0}] is not read, and not written but where backward wants it: {1} bytes a token less",
      layer.hidden, 2 * layer.hidden));
  using enum Operation;
  join(steps, kQuantize, kPermutePad, kQuantizePermutePad);
  join(steps, kQuantizeDy, kPermutePadGrad, kQuantizePermutePadGrad);
}

void replace(std::vector<Step>& steps, Operation one, Operation other) {
  for (Step& step : steps)
    if (step.operation == one) step.operation = other;
}

// Whether h1 is computed again.
bool recomputes(const std::vector<Step>& steps) {
  return std::ranges::any_of(steps, [](const Step& step) {
    return step.phase == Phase::kBackward && step.operation == Operation::kGemmFc1;
  });
}

void fuse_transpose(std::vector<Step>& steps, const Layer& layer,
                    std::vector<std::string>& reasons) {
  using enum Operation;
  const bool transposes_x = contains(steps, kTransposeX);
  const bool transposes_dy = contains(steps, kTransposeGrad);
  const bool transposes = transposes_x || transposes_dy, makes_again = recomputes(steps);
  if (!is_quantized(layer) || (!transposes && !makes_again)) return;
  if (!gathers_tokens(layer)) {
    if (!transposes) return;
    reasons.push_back(
        layer.fuse_transpose
            ? fmt::format(
                  "permute and transpose stay apart: with {} rows of {} tokens in a largest call, "
                  "gathering the rows would move more bytes than it saves",
                  routed_rows(layer), layer.max_tokens)
            : std::string("permute and transpose stay apart: \"fuse_transpose\" is false"));
    return;
  }
  replace(steps, kTransposeX, kPermuteTransposeX);
  replace(steps, kTransposeGrad, kPermuteTransposeGrad);
  if (transposes) {
    const std::string_view operands = transposes_x && transposes_dy ? "x_q and dy_q"
                                      : transposes_x                ? "x_q"
                                                                    : "dy_q";
    const bool saves_x = transposes_x || makes_again;
    reasons.push_back(fmt::format(
        "permute and transpose are one kernel: wgrad's operands are made of {} [T, {}]"
        ", gathered{}",
        operands, layer.hidden,
        saves_x ? fmt::format(", and x_q is saved instead of permuted_q [P, {}]", layer.hidden)
                : std::string()));
  }
  if (!makes_again) return;
  const auto backward = std::ranges::find(steps, Phase::kBackward, &Step::phase);
  steps.insert(backward, {Phase::kBackward, kPermutePad});
  reasons.emplace_back("x_q is permuted again for the recomputed gemm_fc1");
}

// Why the activation's gradient and the transposes of dh1 and act stay apart.
std::string apart_reason(const Layer& layer, bool needs_h1) {
  if (!computes(layer, Gradient::kDw2)) return "dw2, which would need act, is not computed";
  if (!needs_h1) return "nothing needs dh1";
  if (!layer.fuse_activation_transpose) return "\"fuse_activation_transpose\" is false";
  if (!has_gate(layer.activation)) return "the activation has no gate";
  if (layer.scale_sharing_k > 1)
    return fmt::format("{0} neighbouring blocks of dh1 share a scale, and lie in tiles of {0} CTAs",
                       layer.scale_sharing_k);
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

void fuse_activation_transpose(std::vector<Step>& steps, const Layer& layer,
                               std::vector<std::string>& reasons) {
  using enum Operation;
  const bool transposes_dh1 = contains(steps, kTransposeDh1);
  if (!transposes_dh1 && !contains(steps, kTransposeAct)) return;
  if (!transposes_activation(layer)) {
    reasons.push_back(
        fmt::format("the activation's gradient and the transposes of dh1 and act stay apart: {}",
                    apart_reason(layer, contains(steps, kActivationBackwardQuantize) ||
                                            contains(steps, kActivationDprobs))));
    return;
  }
  std::erase_if(steps, [](const Step& step) {
    return step.operation == kTransposeAct || step.operation == kTransposeDh1 ||
           step.operation == kActivationBackwardQuantize || step.operation == kActivationDprobs ||
           (step.phase == Phase::kBackward && step.operation == kActivationQuantize);
  });
  const auto dgrad = std::ranges::find(steps, kGemmFc2Dgrad, &Step::operation);
  steps.insert(dgrad + 1, {Phase::kBackward, kActivationBackwardQuantizeTranspose});
  const std::string_view verb = layer.recompute == Recompute::kMoeExpert ? "recomputed" : "saved";
  reasons.push_back(
      transposes_dh1
          ? fmt::format("the activation's gradient and the transposes of dh1 and act are one "
                        "kernel: dh1_q [P, {}] and act_q [P, {}] are not read again, and act_q is "
                        "not {}",
                        2 * layer.intermediate, layer.intermediate, verb)
          : fmt::format("the activation's gradient and the transpose of act are one kernel: act_q "
                        "[P, {}] is not read again, and not {}",
                        layer.intermediate, verb));
}

// Of the CUDA math library. An epilogue with 2 compiles in 1.9 s, with 4 in 3.7, with 10 in 28
// (tanh and erf in turn, NVRTC 13.0).
constexpr int kMostLibraryFunctions = 2;

int library_functions(const Activation& activation) {
  using enum Operator;
  constexpr Operator kFunctions[] = {kTanh, kExp, kLog, kErf, kDivide, kSqrt};
  int count = 0;
  for (const Assignment& assignment : straight_line({&activation.formula, 1}).assignments)
    count += static_cast<int>(std::ranges::count(kFunctions, assignment.op));
  return count;
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
                    "share a scale, and the tiles that compute them belong to {0} CTAs",
                    layer.scale_sharing_k));
    return;
  }
  if (const int count = library_functions(layer.activation); count > kMostLibraryFunctions) {
    reasons.push_back(fmt::format(
        "gemm_fc1 and activation_quantize stay apart: the activation calls {} functions that are "
        "no instructions, and an epilogue has them for each of a thread's 64 columns, which "
        "takes the assembler seconds, with many of them minutes",
        count));
    return;
  }
  if (mean_rows(layer) <= kMostSwappedRows) {
    reasons.push_back(fmt::format(
        "gemm_fc1 and activation_quantize stay apart: an expert has {} rows in the mean, for which "
        "tiles are swapped, and swapped tiles have the columns of a scale in two warpgroups",
        mean_rows(layer)));
    return;
  }
  const bool is_written = options.keep_intermediates || Dataflow(layer, steps).saves("h1");
  reasons.push_back(fmt::format(
      "gemm_fc1 and activation_quantize are one kernel: gate and up are activated in registers, "
      "and h1 [P, {}] is {}, which saves {} bytes a row",
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
  fused = needed_steps(fused, layer);  // rows that are gathered need not be permuted too
  part_backward(fused, layer);
  return fused;
}

}  // namespace moejit::compiler
