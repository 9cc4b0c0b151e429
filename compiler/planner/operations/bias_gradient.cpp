// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/bias_gradient.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {
namespace {

DType element_of(const Port& rows) {
  return rows.scale_inv.empty() ? DType::kBF16 : DType::kF8E4M3;
}

}  // namespace

KernelPlan make_kernel(const Operation& operation, const BiasGradient& gradient,
                       const KernelContext&) {
  ColumnSumsSpec spec = gradient.spec;
  spec.input = element_of(read_of(operation, "input"));
  KernelPlan kernel{.spec = spec,
                    .reasons = {"rows are added up by a fixed tree: the same bits in every run"}};
  add_arguments(kernel, operation, {"input", "counts", "offs", "output", "probs"});
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const BiasDprobs& dprobs, const KernelContext&) {
  KernelPlan kernel{
      .spec = RowDotsSpec{.input = element_of(read_of(operation, "input")),
                          .local_experts = dprobs.local_experts,
                          .columns = dprobs.columns},
      .reasons = {"b2 meets the routing probability, so its product with a row's gradient belongs "
                  "to that of the probability"}};
  add_arguments(kernel, operation, {"input", "bias", "counts", "offs", "output"});
  return kernel;
}

}  // namespace moejit::compiler
