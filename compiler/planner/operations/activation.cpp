// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/activation.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const Activate& activate, const KernelContext&) {
  KernelPlan kernel{
      .spec = RowChainSpec{.load = has_gate(activate.activation) ? LoadStage::kGatedRows
                                                                 : LoadStage::kUpRows,
                           .transform = TransformStage::kActivationProbability,
                           .quantize = quantize_stage(activate.format, activate.blocks_per_scale),
                           .store = StoreStage::kGroupedRows,
                           .columns = activate.columns,
                           .local_experts = activate.local_experts,
                           .epsilon = activate.format.epsilon,
                           .segments_in_flight = 2,
                           .is_interleaved = activate.is_interleaved,
                           .activation = activate.activation},
      .reasons = {"the routing probability is applied here, so unpermute is a plain sum",
                  "a kernel of its own, which reads h1 again"},
  };
  add_arguments(kernel, operation, {"input", "probs", "counts", "offs", "output"});
  if (activate.is_interleaved) kernel.reasons.emplace_back(kInterleavedH1Reason);
  return kernel;
}

}  // namespace moejit::compiler
