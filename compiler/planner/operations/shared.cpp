// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/shared.h"

#include "compiler/planner/operation.h"

namespace moejit::compiler {

template <>
KernelPlan make_kernel(const Operation& operation, const SharedChoices& shared,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = shared.spec,
      .reasons = {"shared experts become choices of every token, on its own rank: the kernels "
                  "behind it multiply all experts together"}};
  add_arguments(kernel, operation,
                {"topk_ids", "topk_probs", "shared_probs", "all_ids", "all_probs"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const SharedDprobs& shared,
                       const KernelContext&) {
  KernelPlan kernel{.spec = shared.spec,
                    .reasons = {shared.spec.has_gate
                                    ? "fp32 sum over a token's shared experts, in ascending order"
                                    : "probabilities that are 1 have no gradient"}};
  add_arguments(kernel, operation, {"all_dprobs", "dprobs", "dshared_probs"});
  return kernel;
}

}  // namespace moejit::compiler
