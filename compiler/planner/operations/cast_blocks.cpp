// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/cast_blocks.h"

#include "compiler/planner/operations/arguments.h"

#include <fmt/core.h>

namespace moejit::compiler {

namespace {

KernelSpec spec_of(const CastBlocks& cast, bool casts_rows, bool casts_columns) {
  const CastResult result = cast.format.is_recovered ? CastResult::kValues : CastResult::kCodes;
  if (has_two_levels(cast.format))
    return TwoLevelCastSpec{.source = cast.source,
                            .result = result,
                            .has_tiles = has_square_blocks(cast.format),
                            .casts_rows = casts_rows,
                            .casts_columns = casts_columns,
                            .local_experts = cast.local_experts,
                            .matrix_rows = cast.matrix_rows,
                            .columns = cast.columns};
  return BlockCastSpec{.source = cast.source,
                       .result = result,
                       .casts_rows = casts_rows,
                       .casts_columns = casts_columns,
                       .local_experts = cast.local_experts,
                       .matrix_rows = cast.matrix_rows,
                       .columns = cast.columns};
}

std::string scales_reason(const Format& format, bool casts_rows, bool casts_columns) {
  const std::string_view scale = has_two_levels(format) ? "E4M3" : "E8M0";
  const int32_t elements = has_two_levels(format) ? 16 : 32;
  if (has_square_blocks(format))
    return fmt::format("one {} scale for {}x{}: rows and columns have the same values", scale,
                       elements, elements);
  if (casts_rows && casts_columns)
    return fmt::format(
        "{} elements along either contraction share a scale: both casts are made of one read",
        elements);
  return fmt::format("one {} scale for {} {}", scale, elements,
                     casts_rows ? "columns of a row" : "rows of a column");
}

}  // namespace

KernelPlan make_kernel(const Operation& operation, const CastBlocks& cast, const KernelContext&) {
  const bool casts_rows = find_write(operation, "output") != nullptr;
  const bool casts_columns = find_write(operation, "output_colwise") != nullptr;
  KernelPlan kernel{.spec = spec_of(cast, casts_rows, casts_columns),
                    .reasons = {scales_reason(cast.format, casts_rows, casts_columns)}};
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output", "output_colwise", "skip",
                 "expert_scales"});
  if (cast.format.is_recovered)
    kernel.reasons.emplace_back(
        "codes times scales are stored in bf16, exactly: no tensor core here takes such scales");
  if (cast.source != RowSource::kInOrder)
    kernel.reasons.emplace_back(
        "each row is fetched from its token, which L2 holds for the other experts of the token");
  return kernel;
}

}  // namespace moejit::compiler
