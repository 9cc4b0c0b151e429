// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/grouped_gemm.h"

#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/operation.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string tile_kind_reason(const CallBounds& bounds) {
  const int64_t rows = mean_rows(bounds);
  if (rows <= kMostSwappedRows)
    return fmt::format(
        "swapped tiles: {} tokens give an expert {} rows in the mean, no more than {}",
        bounds.max_tokens, rows, kMostSwappedRows);
  return fmt::format(
      "tiles of 128 rows: {} tokens give an expert {} rows in the mean, more than {}",
      bounds.max_tokens, rows, kMostSwappedRows);
}

GemmTensors gemm_tensors(const Operation& operation) {
  const Port &a = read_of(operation, "a"), &b = read_of(operation, "b");
  GemmTensors tensors{
      .a = a.tensor, .b = b.tensor, .a_scale_inv = a.scale_inv, .b_scale_inv = b.scale_inv};
  if (const Port* const d = find_write(operation, "d")) tensors.d = d->tensor;
  if (const Port* const q = find_write(operation, "q")) {
    tensors.q = q->tensor;
    tensors.q_scale_inv = q->scale_inv;
  }
  if (const Port* const probs = find_read(operation, "probs")) tensors.probs = probs->tensor;
  if (const Port* const bias = find_read(operation, "bias")) tensors.bias = bias->tensor;
  return tensors;
}

}  // namespace

void set_formats(GroupedGemmSpec& problem, const Format& a) {
  problem.operands = a.dtype;
  problem.scales = has_scales(a) ? GemmScales::kRowBlock : GemmScales::kNone;
}

KernelPlan make_kernel(const Operation& operation, const GroupedGemm& gemm,
                       const KernelContext& context) {
  const CallBounds& bounds = context.bounds;
  const GroupedGemmSpec& problem = gemm.problem;
  // A token goes to an expert at most once, so a group has at most max_tokens rows.
  const bool is_swapped = may_be_swapped(problem) && mean_rows(bounds) <= kMostSwappedRows;
  const GroupedGemmSpec spec =
      is_swapped ? choose_swapped_tiles(problem, bounds.max_tokens) : choose_tiles(problem);
  KernelPlan kernel =
      grouped_gemm_kernel(problem, spec, bounds.max_permuted_rows, gemm_tensors(operation));
  if (may_be_swapped(problem))
    kernel.reasons.insert(kernel.reasons.begin(), tile_kind_reason(bounds));
  return kernel;
}

KernelPlan make_kernel(const Operation& operation, const GroupedGemmActivation& gemm,
                       const KernelContext& context) {
  const Port* const d = find_write(operation, "d");
  GroupedGemmSpec problem = gemm.problem;
  problem.epilogue =
      d != nullptr ? GemmEpilogue::kStoreAndActivationQuantize : GemmEpilogue::kActivationQuantize;
  KernelPlan kernel = grouped_gemm_kernel(
      problem, choose_tiles(problem), context.bounds.max_permuted_rows, gemm_tensors(operation));
  kernel.reasons.insert(kernel.reasons.begin(), tile_kind_reason(context.bounds));
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

}  // namespace moejit::compiler
