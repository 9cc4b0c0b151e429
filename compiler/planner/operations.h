// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

class Dataflow;

// The operations of a layer before anything is said about kernels.
enum class Operation {
  kQuantizeW1,
  kQuantizeW2,
  kQuantize,
  kRoute,
  kPermutePad,
  kQuantizePermutePad,  // quantize and permute_pad in one kernel
  kGemmFc1,
  kActivation,
  kActivationQuantize,
  kGemmFc1ActivationQuantize,  // gemm_fc1 and that in one kernel
  kGemmFc2,
  kUnpermute,
  // Of the gradient dy
  kQuantizeDy,
  kPermutePadGrad,
  kQuantizePermutePadGrad,  // both in one kernel
  kGemmFc2Dgrad,
  kTransposeGrad,         // into the column-wise operands of wgrad, as all transposes
  kPermuteTransposeGrad,  // of rows that are gathered
  kTransposeAct,
  kGemmFc2Wgrad,
  kGemmFc2WgradAdd,
  kActivationBackward,
  kActivationBackwardQuantize,
  kActivationBackwardQuantizeTranspose,  // and the transposes of dh1 and of act, computed again
  kActivationDprobs,  // of the activation's gradients that of the probability alone
  kGemmFc1Dgrad,
  kTransposeDh1,
  kTransposeX,
  kPermuteTransposeX,
  kGemmFc1Wgrad,
  kGemmFc1WgradAdd,
  kUnpermuteGrad,  // dx and dprobs
  kUnpermuteDx,    // one of them alone
  kUnpermuteDprobs,
  // Of biases
  kBiasDprobs,
  kFc2BiasGrad,
  kFc2BiasGradAdd,
  kFc1BiasGrad,
  kFc1BiasGradAdd,
};

// An operation and the call that it belongs to: with recomputation some are in two.
struct Step {
  Phase phase = Phase::kForward;
  Operation operation = Operation::kRoute;
  std::optional<BackwardHalf> half = {};  // part_backward() says which
};

std::string_view to_string(Operation operation);
bool is_gemm(Operation operation);

// Name of the tensor in which a GEMM tells how long it ran (PlanOptions::measure_gemms).
std::string elapsed_tensor(const Step& step);

// Whether wgrad's groups of columns start elsewhere than the groups of rows: they start at
// multiples of 128.
bool has_colwise_offs(const Layer& layer);

// Rows that a largest call routes at most, without pad rows.
int64_t routed_rows(const Layer& layer);

// Whether the operands of wgrad are made of the tokens' rows, gathered, and not of permuted ones,
// which are then made again where the backward pass needs them.
bool gathers_tokens(const Layer& layer);
// Whether the kernel of the activation's gradient makes the operands of wgrad too, so that the
// activation itself need not be kept: where dw2 is computed, and something else needs h1 anyway.
bool transposes_activation(const Layer& layer);
bool contains(const std::vector<Step>& steps, Operation operation);

// What the passes of a layer do, in order: weights, forward, backward. No two operations are fused
// yet, every operation reads only what earlier ones wrote, and none is there for a gradient that
// the layer does not compute.
std::vector<Step> layer_steps(const Layer& layer);

// Joins neighbours where that saves traffic and nothing else needs the tensor between them, and
// parts the backward pass in its halves. Each decision, taken or not, adds a sentence to `reasons`.
std::vector<Step> fuse_steps(const std::vector<Step>& steps, const Layer& layer,
                             const PlanOptions& options, std::vector<std::string>& reasons);

// Every tensor that steps of such a layer can touch, shapes at their bounds, lifetimes not yet
// known. What is between kernels is saved, deferred or in the workspace, as `flow`, that of these
// steps, says.
std::vector<TensorPlan> make_tensors(const Layer& layer, const std::vector<Step>& steps,
                                     const Dataflow& flow, const PlanOptions& options);

// The kernel that does one operation: stages, tiles, arguments and reasons; launch and work
// counts are filled in by plan_layer(). `flow` is that of all steps.
KernelPlan make_kernel(const Step& step, const Layer& layer, const Dataflow& flow,
                       const Target& target, const PlanOptions& options);

}  // namespace moejit::compiler
