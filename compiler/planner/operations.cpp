// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations.h"

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
    case Operation::kSwigluQuantize: return "swiglu_quantize";
    case Operation::kGemmFc2: return "gemm_fc2";
    case Operation::kUnpermute: return "unpermute";
  }
  return "unknown";
}

bool is_gemm(Operation operation) {
  return operation == Operation::kGemmFc1 || operation == Operation::kGemmFc2;
}

std::string elapsed_tensor(Operation operation) {
  return fmt::format("{}_elapsed", to_string(operation));
}

std::vector<Operation> forward_operations() {
  return {Operation::kQuantizeW1,     Operation::kQuantizeW2, Operation::kQuantize,
          Operation::kRoute,          Operation::kPermutePad, Operation::kGemmFc1,
          Operation::kSwigluQuantize, Operation::kGemmFc2,    Operation::kUnpermute};
}

std::vector<Operation> fuse_operations(const std::vector<Operation>& operations, const Layer& layer,
                                       std::vector<std::string>& reasons) {
  if (layer.dispatch != Dispatch::kNone) {
    reasons.push_back(fmt::format(
        "quantize and permute_pad stay apart: x_q is what dispatch \"{}\" sends between ranks",
        to_string(layer.dispatch)));
    return operations;
  }
  reasons.push_back(fmt::format(
      "quantize and permute_pad are one kernel: nothing is dispatched in between, and x_q "
      "[T, {0}] is neither written nor read, which saves {1} bytes a token",
      layer.hidden, 2 * layer.hidden));

  std::vector<Operation> fused = operations;
  std::erase(fused, Operation::kQuantize);
  std::ranges::replace(fused, Operation::kPermutePad, Operation::kQuantizePermutePad);
  return fused;
}

}  // namespace moejit::compiler
