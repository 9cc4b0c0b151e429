// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/stored_scales.h"

#include "compiler/planner/operations/arguments.h"

#include <string>

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const TakeScales& take, const KernelContext&) {
  KernelPlan kernel{
      .spec = TakeScalesSpec{.experts = take.experts, .columns = take.columns},
      .reasons = {"codes keep the scale that they were made with, while the state moves on"}};
  add_arguments(kernel, operation, {"fc1_stored", "fc2_stored", "skip"});
  for (const std::string linear : {"fc1", "fc2"}) {
    const Port* const scales = find_write(operation, linear + "_scale");
    if (scales == nullptr) continue;
    kernel.arguments.push_back({linear + "_scale", scales->tensor});
    kernel.arguments.push_back({linear + "_scale_inv", scales->scale_inv});
  }
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const UpdateScales& update,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = UpdateScalesSpec{.columns = update.columns,
                               .history_length = update.history_length,
                               .largest = update.largest,
                               .algorithm = update.algorithm},
      .reasons = {"one launch for all columns of fc1 and fc2, in a call of its own: before it the "
                  "caller may reduce the largest magnitudes over ranks"}};
  add_arguments(kernel, operation,
                {"fc1_amax_history", "fc1_scale", "fc2_amax_history", "fc2_scale"});
  return kernel;
}

}  // namespace moejit::compiler
