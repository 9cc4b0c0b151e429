// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/weight_check.h"

#include "compiler/planner/operations/arguments.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const CheckWeights& check,
                       const KernelContext&) {
  const int32_t window = 64 * check.spec.window_probes;
  KernelPlan kernel{
      .spec = check.spec,
      .reasons = {check.spec.window_probes == 1
                      ? "every byte of the weights is compared: they are small"
                      : fmt::format("64 of every {} bytes are compared, so that the check takes a "
                                    "few microseconds; two such windows in a row hold a probe, "
                                    "wherever they begin",
                                    window),
                  "the casts behind it end at once if nothing has changed"}};
  add_arguments(kernel, operation, {"w1", "w2", "skip", "status", "digest"});
  return kernel;
}

}  // namespace moejit::compiler
