// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/unpermute.h"

#include "compiler/planner/operations/arguments.h"

#include <string_view>

namespace moejit::compiler {
namespace {

constexpr std::string_view kSumReason =
    "fp32 sum in descending row order: the same bits for any batch";

KernelPlan dprobs_kernel(const Operation& operation, const Unpermute& unpermute) {
  KernelPlan kernel{
      .spec =
          UnpermuteDprobsSpec{.top_k = unpermute.top_k,
                              .dprobs_columns = unpermute.dprobs_columns,
                              .adds_bias_dprobs = find_read(operation, "bias_dprobs") != nullptr,
                              .probs = unpermute.probs},
      .reasons = {"nobody asks for dx, beside whose rows they would be gathered"},
  };
  add_arguments(kernel, operation, {"row_map", "dprobs_blocks", "dprobs", "bias_dprobs"});
  return kernel;
}

}  // namespace

KernelPlan make_kernel(const Operation& operation, const Unpermute& unpermute,
                       const KernelContext&) {
  if (find_write(operation, "output") == nullptr) return dprobs_kernel(operation, unpermute);
  RowChainSpec spec{.load = LoadStage::kCombinedRows,
                    .quantize = QuantizeStage::kNone,
                    .columns = unpermute.columns,
                    .top_k = unpermute.top_k};
  KernelPlan kernel{.reasons = {std::string(kSumReason)}};
  if (find_write(operation, "dprobs") != nullptr) {
    spec.store = StoreStage::kRowsAndProbs;
    spec.dprobs_columns = unpermute.dprobs_columns;
    spec.adds_bias_dprobs = find_read(operation, "bias_dprobs") != nullptr;
    spec.probs = unpermute.probs;
    kernel.reasons.emplace_back("the gradients of a token's probabilities are gathered on the way");
  }
  kernel.spec = spec;
  add_arguments(kernel, operation,
                {"input", "row_map", "output", "dprobs_blocks", "dprobs", "bias_dprobs"});
  return kernel;
}

void narrow(Operation& operation, const Unpermute&) {
  const auto drop_reads = [&](std::string_view role) {
    std::erase_if(operation.reads, [&](const Port& port) { return port.role == role; });
  };
  const bool has_dprobs = find_write(operation, "dprobs") != nullptr;
  if (find_write(operation, "output") == nullptr) {
    operation.name = "unpermute_dprobs";
    drop_reads("input");
  } else if (!has_dprobs && find_read(operation, "dprobs_blocks") != nullptr) {
    operation.name = "unpermute_dx";
    drop_reads("dprobs_blocks");
    drop_reads("bias_dprobs");
  }
}

}  // namespace moejit::compiler
