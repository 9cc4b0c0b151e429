// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/quantize_columns.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const QuantizeColumns& cast,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = ColumnCastSpec{.source = cast.source,
                             .local_experts = cast.local_experts,
                             .columns = cast.columns,
                             .epsilon = cast.format.epsilon},
      .reasons = {"values are quantized anew, 128 tokens of a column with one scale: no scale of "
                  "the rows coarsens them"},
  };
  add_arguments(kernel, operation,
                {"input", "counts", "offs", "output_offs", "output", "row_tokens"});
  if (cast.source != RowSource::kInOrder)
    kernel.reasons.emplace_back(
        "each row is fetched from its token, which L2 holds for the other experts of the token");
  return kernel;
}

}  // namespace moejit::compiler
