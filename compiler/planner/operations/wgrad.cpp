// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/wgrad.h"

#include "compiler/launch.h"
#include "compiler/planner/candidate.h"
#include "compiler/planner/contraction_grouped_gemm.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/operations/arguments.h"

#include <algorithm>

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const Wgrad& wgrad,
                       const KernelContext& context) {
  const CallBounds& bounds = context.bounds;
  const Port &a = read_of(operation, "a"), &b = read_of(operation, "b");
  const int64_t padded = operands_of(wgrad.problem) == DType::kBF16 ? bounds.max_permuted_rows
                                                                    : gradient_columns(bounds);
  const int64_t mean_columns =
      std::max<int64_t>(1, std::min(mean_rows(bounds), padded) / bounds.groups);
  KernelPlan kernel = contraction_grouped_gemm_kernel(
      wgrad.problem, padded, mean_columns,
      {.a = a.tensor, .b = b.tensor, .d = write_of(operation, "d").tensor}, context.options);
  add_arguments(kernel, operation, {"counts", "offs"});
  if (!a.scale_inv.empty()) {
    kernel.arguments.push_back({"a_scale_inv", a.scale_inv});
    kernel.arguments.push_back({"b_scale_inv", b.scale_inv});
  }
  return kernel;
}

}  // namespace moejit::compiler
