// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/transpose.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const Transpose& transpose,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = TransposeSpec{.format = transpose.format,
                            .rule = transpose.keeps_bytes ? TransposeRule::kKeepBytes
                                                          : TransposeRule::kIdeal,
                            .source = transpose.source,
                            .local_experts = transpose.local_experts,
                            .columns = transpose.columns},
      .reasons = {"the codes of a 128x128 tile are shifted to its largest scale: nothing is "
                  "dequantized, and wgrad needs one scale for each tile"},
  };
  if (transpose.keeps_bytes)
    kernel.reasons = {"bytes are copied as they are: an expert's rows have one scale"};
  add_arguments(kernel, operation,
                {"input", "counts", "offs", "output_offs", "output", "row_tokens"});
  if (transpose.source != RowSource::kInOrder)
    kernel.reasons.emplace_back(
        "each row is fetched from its token, which L2 holds for the other experts of the token");
  return kernel;
}

}  // namespace moejit::compiler
