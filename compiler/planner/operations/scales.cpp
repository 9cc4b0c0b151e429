// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/scales.h"

#include "compiler/planner/operation.h"

#include <string>

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
  if (spec.source != RowSource::kInOrder) kernel.reasons.emplace_back(kFetchedReason);
  if (spec.is_interleaved)
    kernel.reasons.emplace_back(
        "rows of gate and up, which alternate, are sorted on the way: GEMMs have all of gate "
        "first");
}

}  // namespace

template <>
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

template <>
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

template <>
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

template <>
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

namespace {

MatrixAmaxSpec spec_of(const MatrixAmax& amax) {
  return {.rows = amax.rows, .columns = amax.columns};
}

}  // namespace

int64_t pieces_of(const MatrixAmax& amax) { return pieces_of(spec_of(amax)); }

template <>
KernelPlan make_kernel(const Operation& operation, const MatrixAmax& amax, const KernelContext&) {
  KernelPlan kernel{.spec = spec_of(amax),
                    .reasons = {"the scale of an expert is known only after a look at all of its "
                                "weights"}};
  add_arguments(kernel, operation, {"input", "output", "skip"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const RowAmax& amax, const KernelContext&) {
  KernelPlan kernel{.spec = RowChainSpec{.quantize = QuantizeStage::kAmax,
                                         .store = StoreStage::kGroupedRows,
                                         .columns = amax.columns,
                                         .local_experts = amax.local_experts},
                    .reasons = {std::string(kAmaxReason)}};
  add_arguments(kernel, operation, {"input", "counts", "offs", "output"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const ExpertScales& scales,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = ExpertScalesSpec{.format = scales.format.dtype,
                               .magnitudes = scales.magnitudes,
                               .has_rows = find_read(operation, "counts") != nullptr,
                               .is_power_of_two = scales.format.rule == ScaleRule::kPowerOfTwo},
      .reasons = {"a CTA for each expert: maxima are the same in any order"}};
  add_arguments(kernel, operation, {"amax", "counts", "offs", "scale", "scale_inv", "skip"});
  return kernel;
}

}  // namespace moejit::compiler
