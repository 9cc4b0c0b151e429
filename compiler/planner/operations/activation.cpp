// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/activation.h"

#include "compiler/planner/operations/arguments.h"
#include "compiler/planner/operations/expert_scales.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const Activate& activate, const KernelContext&) {
  const QuantizeStage quantize = activate.finds_amax
                                     ? QuantizeStage::kAmax
                                     : quantize_stage(activate.format, activate.blocks_per_scale);
  KernelPlan kernel{
      .spec = with_whole_rows(
          {.load = has_gate(activate.activation) ? LoadStage::kGatedRows : LoadStage::kUpRows,
           .transform = TransformStage::kActivationProbability,
           .quantize = quantize,
           .store = StoreStage::kGroupedRows,
           .columns = activate.columns,
           .local_experts = activate.local_experts,
           .epsilon = activate.format.epsilon,
           .segments_in_flight = 2,
           .is_interleaved = activate.is_interleaved,
           .format = activate.format.dtype,
           .activation = activate.activation,
           .amax = activate.amax}),
      .reasons = {"the routing probability is applied here, so unpermute is a plain sum",
                  "a kernel of its own, which reads h1 again"},
  };
  if (activate.finds_amax) kernel.reasons = {std::string(kAmaxReason)};
  add_arguments(kernel, operation,
                {"input", "probs", "counts", "offs", "output", "expert_scales", "amax"});
  if (activate.is_interleaved) kernel.reasons.emplace_back(kInterleavedH1Reason);
  return kernel;
}

}  // namespace moejit::compiler
