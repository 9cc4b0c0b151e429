// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/gemms.h"

#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/operation.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string tile_kind_reason(const CallBounds& bounds, bool is_swapped) {
  const int64_t rows = group_rows(bounds).mean;
  const bool are_few = rows <= kMostSwappedRows;
  if (is_swapped != are_few) return {};  // a record chose the tiles, or there are no others
  return fmt::format("{}: {} tokens give an expert {} rows in the mean, {} than {}",
                     is_swapped ? "swapped tiles" : "tiles of 128 rows", bounds.max_tokens, rows,
                     are_few ? "no more" : "more", kMostSwappedRows);
}

void add_tile_kind_reason(KernelPlan& kernel, const CallBounds& bounds) {
  const bool is_swapped = std::get<GroupedGemmSpec>(kernel.spec).is_swapped;
  if (std::string reason = tile_kind_reason(bounds, is_swapped); !reason.empty())
    kernel.reasons.insert(kernel.reasons.begin(), std::move(reason));
}

GemmTensors gemm_tensors(const Operation& operation) {
  const Port &a = read_of(operation, "a"), &b = read_of(operation, "b");
  GemmTensors tensors{.a = a.tensor,
                      .b = b.tensor,
                      .a_scale_inv = a.scale_inv,
                      .b_scale_inv = b.scale_inv,
                      .counts = read_of(operation, "counts").tensor,
                      .offs = read_of(operation, "offs").tensor};
  if (const Port* const d = find_write(operation, "d")) tensors.d = d->tensor;
  if (const Port* const q = find_write(operation, "q")) {
    tensors.q = q->tensor;
    tensors.q_scale_inv = q->scale_inv;
  }
  if (const Port* const probs = find_read(operation, "probs")) tensors.probs = probs->tensor;
  if (const Port* const bias = find_read(operation, "bias")) tensors.bias = bias->tensor;
  if (const Port* const b_up = find_read(operation, "b_up")) tensors.b_up = b_up->tensor;
  return tensors;
}

}  // namespace

void set_formats(GroupedGemmSpec& problem, const Format& a, const Format& b) {
  problem.b_packed = b.packed;
  problem.operands = is_packed(b) ? a.dtype : stored_dtype(b);
  problem.is_a_e5m2 = a.dtype == DType::kF8E5M2;
  problem.scales = has_expert_factor(a) ? GemmScales::kTensor
                   : has_row_scale(a)   ? GemmScales::kRowColumn
                   : has_scales(a)      ? GemmScales::kRowBlock
                   : is_packed(b)       ? GemmScales::kSection
                                        : GemmScales::kNone;
}

template <>
KernelPlan make_kernel(const Operation& operation, const GroupedGemm& gemm,
                       const KernelContext& context) {
  const CallBounds& bounds = context.bounds;
  KernelPlan kernel =
      grouped_gemm_kernel(gemm.problem, bounds.max_permuted_rows, group_rows(bounds),
                          gemm_tensors(operation), context.target, context.options);
  if (may_be_swapped(gemm.problem)) add_tile_kind_reason(kernel, bounds);
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const GroupedGemmActivation& gemm,
                       const KernelContext& context) {
  const Port* const d = find_write(operation, "d");
  GroupedGemmSpec problem = gemm.problem;
  const bool quantizes = !write_of(operation, "q").scale_inv.empty();
  problem.epilogue =
      quantizes ? (d != nullptr ? GemmEpilogue::kStoreAndActivationQuantize
                                : GemmEpilogue::kActivationQuantize)
                : (d != nullptr ? GemmEpilogue::kStoreAndActivation : GemmEpilogue::kActivation);
  KernelPlan kernel =
      grouped_gemm_kernel(problem, context.bounds.max_permuted_rows, group_rows(context.bounds),
                          gemm_tensors(operation), context.target, context.options);
  add_tile_kind_reason(kernel, context.bounds);
  if (d != nullptr)
    kernel.reasons.push_back(
        fmt::format("{} is written too because {}", d->tensor,
                    d->is_for_caller ? "intermediates are kept" : "backward reads it"));
  kernel.reasons.emplace_back(
      "gate and up are rounded to bf16 before they are activated: the bits of h1 and a kernel that "
      "reads it");
  kernel.reasons.emplace_back(
      "the routing probability is applied here, so unpermute is a plain sum");
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const Wgrad& wgrad,
                       const KernelContext& context) {
  const CallBounds& bounds = context.bounds;
  const Port &a = read_of(operation, "a"), &b = read_of(operation, "b");
  const int64_t padded = operands_of(wgrad.problem) == DType::kBF16 ? bounds.max_permuted_rows
                                                                    : gradient_columns(bounds);
  const int64_t mean_columns =
      std::max<int64_t>(1, std::min(mean_rows(bounds), padded) / bounds.groups);
  ContractionGroupedGemmSpec problem = wgrad.problem;
  problem.ends_groups = ends_groups(problem, bounds.splits_alignment);
  KernelPlan kernel = contraction_grouped_gemm_kernel(
      problem, padded, mean_columns,
      {.a = a.tensor,
       .b = b.tensor,
       .d = write_of(operation, "d").tensor,
       .d_up = problem.is_separate ? write_of(operation, "d_up").tensor : ""},
      context.target, context.options);
  add_arguments(kernel, operation, {"counts", "offs"});
  if (!a.scale_inv.empty()) {
    kernel.arguments.push_back({"a_scale_inv", a.scale_inv});
    kernel.arguments.push_back({"b_scale_inv", b.scale_inv});
  }
  return kernel;
}

namespace {

DType element_of(const Port& rows) {
  return rows.scale_inv.empty() ? DType::kBF16 : DType::kF8E4M3;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const BiasGradient& gradient,
                       const KernelContext&) {
  ColumnSumsSpec spec = gradient.spec;
  spec.input = element_of(read_of(operation, "input"));
  KernelPlan kernel{.spec = spec,
                    .reasons = {"rows are added up by a fixed tree: the same bits in every run"}};
  add_arguments(kernel, operation, {"input", "counts", "offs", "output", "probs"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const BiasDprobs& dprobs, const KernelContext&) {
  KernelPlan kernel{
      .spec = RowDotsSpec{.input = element_of(read_of(operation, "input")),
                          .local_experts = dprobs.local_experts,
                          .columns = dprobs.columns},
      .reasons = {"b2 meets the routing probability, so its product with a row's gradient belongs "
                  "to that of the probability"}};
  add_arguments(kernel, operation, {"input", "bias", "counts", "offs", "output"});
  return kernel;
}

}  // namespace moejit::compiler
