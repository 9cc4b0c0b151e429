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
    case Operation::kSwigluQuantize: return "swiglu_quantize";
    case Operation::kGemmFc1SwigluQuantize: return "gemm_fc1_swiglu_quantize";
    case Operation::kGemmFc2: return "gemm_fc2";
    case Operation::kUnpermute: return "unpermute";
  }
  return "unknown";
}

bool is_gemm(Operation operation) {
  return operation == Operation::kGemmFc1 || operation == Operation::kGemmFc1SwigluQuantize ||
         operation == Operation::kGemmFc2;
}

std::string elapsed_tensor(Operation operation) {
  return fmt::format("{}_elapsed", to_string(operation));
}

std::vector<Operation> forward_operations() {
  return {Operation::kQuantizeW1,     Operation::kQuantizeW2, Operation::kQuantize,
          Operation::kRoute,          Operation::kPermutePad, Operation::kGemmFc1,
          Operation::kSwigluQuantize, Operation::kGemmFc2,    Operation::kUnpermute};
}

namespace {

void fuse_quantize(std::vector<Operation>& operations, const Layer& layer,
                   std::vector<std::string>& reasons) {
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
  std::erase(operations, Operation::kQuantize);
  std::ranges::replace(operations, Operation::kPermutePad, Operation::kQuantizePermutePad);
}

void fuse_activation(std::vector<Operation>& operations, const Layer& layer,
                     const PlanOptions& options, std::vector<std::string>& reasons) {
  if (!layer.fuse_activation) {
    reasons.emplace_back("gemm_fc1 and swiglu_quantize stay apart: \"fuse_activation\" is false");
    return;
  }
  if (layer.scale_sharing_k > 1) {
    reasons.push_back(fmt::format(
        "gemm_fc1 and swiglu_quantize stay apart: {0} neighbouring blocks of act share a scale, "
        "and the tiles that compute them belong to {0} CTAs",
        layer.scale_sharing_k));
    return;
  }
  if (mean_rows(layer) <= kMostSwappedRows) {
    reasons.push_back(fmt::format(
        "gemm_fc1 and swiglu_quantize stay apart: an expert has {} rows in the mean, for which "
        "tiles are swapped, and swapped tiles have the columns of a scale in two warpgroups",
        mean_rows(layer)));
    return;
  }
  reasons.push_back(fmt::format(
      "gemm_fc1 and swiglu_quantize are one kernel: gate and up are activated in registers, and h1 "
      "[P, {}] is {}, which saves {} bytes a row",
      2 * layer.intermediate,
      options.keep_intermediates ? "written because intermediates are kept, but not read"
                                 : "neither written nor read",
      (options.keep_intermediates ? 4 : 8) * layer.intermediate));
  std::erase(operations, Operation::kSwigluQuantize);
  std::ranges::replace(operations, Operation::kGemmFc1, Operation::kGemmFc1SwigluQuantize);
}

}  // namespace

std::vector<Operation> fuse_operations(const std::vector<Operation>& operations, const Layer& layer,
                                       const PlanOptions& options,
                                       std::vector<std::string>& reasons) {
  std::vector<Operation> fused = operations;
  fuse_quantize(fused, layer, reasons);
  fuse_activation(fused, layer, options, reasons);
  return fused;
}

}  // namespace moejit::compiler
