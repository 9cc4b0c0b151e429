// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/cast_transpose.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const CastTranspose& cast,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = CastTransposeSpec{.format = cast.format.dtype,
                                .local_experts = cast.local_experts,
                                .columns = cast.columns,
                                .zeroes_rows = cast.zeroes_rows,
                                .stores_rows = find_write(operation, "output") != nullptr,
                                .amax = cast.amax},
      .reasons = {"an expert's scale is known beforehand, so that rows and columns are cast from "
                  "one read, to the same bytes",
                  "each row is fetched from its token, which L2 holds for the other experts of the "
                  "token"},
  };
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output_offs", "expert_scales", "output",
                 "output_colwise", "amax"});
  return kernel;
}

}  // namespace moejit::compiler
