// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/group_columns.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {
namespace {

constexpr int32_t kScalesThreads = 256, kCastThreads = 128;
constexpr int32_t kAmaxThreads = 64;  // two warps look at the magnitudes of 16384 tokens at a time

GroupColumnsSpec spec_of(ColumnPass pass, const ColumnGroups& groups, RowSource source) {
  return {.pass = pass,
          .source = source,
          .local_experts = groups.local_experts,
          .columns = groups.columns,
          .sections = groups.sections,
          .section_rows = groups.section_rows,
          .is_interleaved = groups.is_interleaved,
          .threads = pass == ColumnPass::kScales ? kScalesThreads : kCastThreads};
}

void add_reasons(KernelPlan& kernel) {
  const auto& spec = std::get<GroupColumnsSpec>(kernel.spec);
  if (spec.source != RowSource::kInOrder)
    kernel.reasons.emplace_back(
        "each row is fetched from its token, which L2 holds for the other experts of the token");
  if (spec.is_interleaved)
    kernel.reasons.emplace_back(
        "rows of gate and up, which alternate, are sorted on the way: GEMMs have all of gate "
        "first");
}

}  // namespace

KernelPlan make_kernel(const Operation& operation, const ScaleColumns& scales,
                       const KernelContext&) {
  GroupColumnsSpec spec = spec_of(ColumnPass::kScales, scales.groups, scales.source);
  spec.epsilon = scales.format.epsilon;
  spec.has_amax_rows = scales.has_amax_rows;
  if (spec.has_amax_rows) spec.threads = kAmaxThreads;
  KernelPlan kernel{.spec = spec,
                    .reasons = {"the scale of a column is known only after a look at all of its "
                                "rows; maxima are the same in any order"}};
  add_arguments(
      kernel, operation,
      {"input", "row_tokens", "counts", "offs", "output_offs", "skip", "output_scale_inv"});
  add_reasons(kernel);
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const CastColumns& cast, const KernelContext&) {
  KernelPlan kernel{
      .spec = spec_of(ColumnPass::kCast, cast.groups, cast.source),
      .reasons = {"values are quantized anew, each column with one scale: no scale of the rows "
                  "coarsens them"}};
  add_arguments(kernel, operation,
                {"input", "input_scale_inv", "row_tokens", "counts", "offs", "output_offs", "skip",
                 "output"});
  add_reasons(kernel);
  return kernel;
}

}  // namespace moejit::compiler
