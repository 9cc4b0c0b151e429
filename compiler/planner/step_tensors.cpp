// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/dataflow.h"

namespace moejit::compiler {
namespace {

using Names = std::vector<std::string_view>;

Names and_groups(Names names) {
  names.insert(names.end(), {"counts", "offs"});
  return names;
}

// Adds what tells the groups of rows that are transposed, or that wgrad contracts.
Names and_columns(Names names) {
  names.insert(names.end(), {"counts", "offs", "colwise_offs"});
  return names;
}

// Returns the tensors of a step that permutes the rows of tokens.
StepTensors permuted(Names reads, Names writes) {
  reads.push_back("row_map");
  return {.reads = and_groups(std::move(reads)), .writes = std::move(writes)};
}

StepTensors forward_tensors(const Step& step) {
  using enum Operation;
  switch (step.operation) {
    case kQuantizeW1: return {.reads = {}, .writes = {"w1", "w1_colwise"}};
    case kQuantizeW2: return {.reads = {}, .writes = {"w2", "w2_colwise"}};
    case kQuantize: return {.reads = {}, .writes = {"x"}};
    case kRoute: return {.reads = {}, .writes = {"counts", "offs", "colwise_offs", "row_map"}};
    case kPermutePad:
      // Done again, it is for the rows alone.
      if (step.phase == Phase::kBackward) return permuted({"x"}, {"permuted"});
      return permuted({"x"}, {"permuted", "permuted_probs", "row_tokens"});
    case kQuantizePermutePad:
      return permuted({}, {"x", "permuted", "permuted_probs", "row_tokens"});
    case kGemmFc1: return {.reads = and_groups({"permuted", "w1"}), .writes = {"h1"}};
    case kActivation:
    case kActivationQuantize:
      return {.reads = and_groups({"h1", "permuted_probs"}), .writes = {"act"}};
    case kGemmFc1ActivationQuantize:
      return {.reads = and_groups({"permuted", "w1", "permuted_probs"}), .writes = {"h1", "act"}};
    case kGemmFc2: return {.reads = and_groups({"act", "w2", "permuted_probs"}), .writes = {"h2"}};
    case kUnpermute: return {.reads = {"h2", "row_map"}, .writes = {"y"}};
    default: return {};
  }
}

StepTensors gradient_tensors(Operation operation) {
  using enum Operation;
  switch (operation) {
    case kQuantizeDy: return {.reads = {}, .writes = {"dy"}};
    case kPermutePadGrad: return permuted({"dy"}, {"grad_permuted"});
    case kQuantizePermutePadGrad: return permuted({}, {"dy", "grad_permuted"});
    case kGemmFc2Dgrad:
      return {.reads = and_groups({"grad_permuted", "w2_colwise"}), .writes = {"dact"}};
    case kTransposeGrad:
      return {.reads = and_columns({"grad_permuted"}), .writes = {"grad_colwise"}};
    case kPermuteTransposeGrad:
      return {.reads = and_columns({"dy", "row_tokens"}), .writes = {"grad_colwise"}};
    case kTransposeAct: return {.reads = and_columns({"act"}), .writes = {"act_colwise"}};
    case kActivationBackward:
    case kActivationBackwardQuantize:
      return {.reads = and_groups({"h1", "dact", "permuted_probs"}),
              .writes = {"dh1", "dprobs_blocks"}};
    case kActivationBackwardQuantizeTranspose:
      return {.reads = and_columns({"h1", "dact", "permuted_probs"}),
              .writes = {"dh1", "dprobs_blocks", "dh1_colwise", "act_colwise"}};
    case kActivationDprobs:
      return {.reads = and_groups({"h1", "dact", "permuted_probs"}), .writes = {"dprobs_blocks"}};
    case kGemmFc1Dgrad:
      return {.reads = and_groups({"dh1", "w1_colwise"}), .writes = {"dx_permuted"}};
    case kTransposeDh1: return {.reads = and_columns({"dh1"}), .writes = {"dh1_colwise"}};
    case kTransposeX: return {.reads = and_columns({"permuted"}), .writes = {"x_colwise"}};
    case kPermuteTransposeX:
      return {.reads = and_columns({"x", "row_tokens"}), .writes = {"x_colwise"}};
    case kUnpermuteGrad:
      return {.reads = {"dx_permuted", "row_map", "dprobs_blocks", "bias_dprobs"},
              .writes = {"dx", "dprobs"}};
    case kUnpermuteDx: return {.reads = {"dx_permuted", "row_map"}, .writes = {"dx"}};
    case kUnpermuteDprobs:
      return {.reads = {"row_map", "dprobs_blocks", "bias_dprobs"}, .writes = {"dprobs"}};
    case kBiasDprobs: return {.reads = and_groups({"grad_permuted"}), .writes = {"bias_dprobs"}};
    case kFc2BiasGrad:
    case kFc2BiasGradAdd:
      return {.reads = and_groups({"grad_permuted", "permuted_probs"}), .writes = {"db2"}};
    case kFc1BiasGrad:
    case kFc1BiasGradAdd: return {.reads = and_groups({"dh1"}), .writes = {"db1"}};
    default: return {};
  }
}

// wgrad multiplies along the tokens: transposed copies, or in bf16 rows as they are.
StepTensors wgrad_tensors(Operation operation, bool is_quantized) {
  using enum Operation;
  const bool is_fc1 = operation == kGemmFc1Wgrad || operation == kGemmFc1WgradAdd;
  Names operands =
      is_quantized
          ? (is_fc1 ? Names{"dh1_colwise", "x_colwise"} : Names{"grad_colwise", "act_colwise"})
          : (is_fc1 ? Names{"dh1", "permuted"} : Names{"grad_permuted", "act"});
  return {.reads = and_columns(std::move(operands)), .writes = {is_fc1 ? "dw1" : "dw2"}};
}

}  // namespace

StepTensors tensors_of(const Step& step, const Layer& layer) {
  using enum Operation;
  switch (step.operation) {
    case kGemmFc1Wgrad:
    case kGemmFc1WgradAdd:
    case kGemmFc2Wgrad:
    case kGemmFc2WgradAdd: return wgrad_tensors(step.operation, is_quantized(layer));
    default: break;
  }
  StepTensors forward = forward_tensors(step);
  return forward.writes.empty() ? gradient_tensors(step.operation) : forward;
}

}  // namespace moejit::compiler
