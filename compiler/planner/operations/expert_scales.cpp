// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/expert_scales.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {
namespace {

MatrixAmaxSpec spec_of(const MatrixAmax& amax) {
  return {.rows = amax.rows, .columns = amax.columns};
}

}  // namespace

int64_t pieces_of(const MatrixAmax& amax) { return pieces_of(spec_of(amax)); }

KernelPlan make_kernel(const Operation& operation, const MatrixAmax& amax, const KernelContext&) {
  KernelPlan kernel{.spec = spec_of(amax),
                    .reasons = {"the scale of an expert is known only after a look at all of its "
                                "weights"}};
  add_arguments(kernel, operation, {"input", "output", "skip"});
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const RowAmax& amax, const KernelContext&) {
  KernelPlan kernel{.spec = RowChainSpec{.quantize = QuantizeStage::kAmax,
                                         .store = StoreStage::kGroupedRows,
                                         .columns = amax.columns,
                                         .local_experts = amax.local_experts},
                    .reasons = {std::string(kAmaxReason)}};
  add_arguments(kernel, operation, {"input", "counts", "offs", "output"});
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const ExpertScales& scales,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = ExpertScalesSpec{.format = scales.format.dtype,
                               .magnitudes = scales.magnitudes,
                               .has_rows = find_read(operation, "counts") != nullptr,
                               .is_power_of_two = scales.format.rule == ScaleRule::kPowerOfTwo},
      .reasons = {"a CTA for each expert: maxima are the same in any order"}};
  add_arguments(kernel, operation, {"amax", "counts", "offs", "scale", "scale_inv", "skip"});
  return kernel;
}

}  // namespace moejit::compiler
