// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/cast_transpose.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const CastTranspose& cast,
                       const KernelContext&) {
  constexpr int32_t kThreadsThatFind = 128;
  CastTransposeSpec spec{.format = cast.format.dtype,
                         .local_experts = cast.local_experts,
                         .columns = cast.columns,
                         .zeroes_rows = cast.zeroes_rows,
                         .stores_rows = find_write(operation, "output") != nullptr,
                         .amax = cast.amax};
  std::string one_read =
      "an expert's scale is known beforehand, so that rows and columns are cast from one read, to "
      "the same bytes";
  if (!has_expert_scale(cast.format)) {
    spec.finds_scales = true;
    spec.epsilon = cast.format.epsilon;
    spec.threads = kThreadsThatFind;
    one_read =
        "a tile of 128 rows and 128 columns has all that the scales of its rows and of its columns "
        "follow from, so that both are cast from one read";
  }
  KernelPlan kernel{
      .spec = spec,
      .reasons = {std::move(one_read),
                  "each row is fetched from its token, which L2 holds for the other experts of the "
                  "token"},
  };
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output_offs", "expert_scales", "output",
                 "output_colwise", "amax"});
  return kernel;
}

}  // namespace moejit::compiler
