// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/cast_blocks.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const CastBlocks& cast, const KernelContext&) {
  const bool casts_rows = find_write(operation, "output") != nullptr;
  const bool casts_columns = find_write(operation, "output_colwise") != nullptr;
  KernelPlan kernel{
      .spec = BlockCastSpec{.source = cast.source,
                            .result =
                                cast.format.is_recovered ? CastResult::kValues : CastResult::kCodes,
                            .casts_rows = casts_rows,
                            .casts_columns = casts_columns,
                            .local_experts = cast.local_experts,
                            .matrix_rows = cast.matrix_rows,
                            .columns = cast.columns},
  };
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output", "output_colwise", "skip"});
  if (casts_rows && casts_columns)
    kernel.reasons.emplace_back(
        "32 elements along either contraction share a scale: both casts are made of one read");
  else
    kernel.reasons.emplace_back(casts_rows ? "one E8M0 scale for 32 columns of a row"
                                           : "one E8M0 scale for 32 rows of a column");
  if (cast.format.is_recovered)
    kernel.reasons.emplace_back(
        "codes times scales are stored in bf16, exactly: no tensor core here takes such scales");
  if (cast.source != RowSource::kInOrder)
    kernel.reasons.emplace_back(
        "each row is fetched from its token, which L2 holds for the other experts of the token");
  return kernel;
}

}  // namespace moejit::compiler
