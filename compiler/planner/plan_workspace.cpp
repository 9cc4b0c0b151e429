// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/plan_workspace.h"

#include <algorithm>
#include <numeric>

namespace moejit::compiler {
namespace {

// TMA descriptors want 128-byte, cudaMalloc gives 256-byte alignment.
constexpr int64_t kAlignment = 256;

int64_t align_up(int64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

void find_lifetimes(Plan& plan) {
  for (TensorPlan& tensor : plan.tensors) {
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      if (!touches(plan.kernels[i], tensor.name)) continue;
      if (tensor.first_use < 0) tensor.first_use = static_cast<int32_t>(i);
      tensor.last_use = static_cast<int32_t>(i);
    }
  }
}

bool lifetimes_overlap(const TensorPlan& a, const TensorPlan& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

// Lowest offset at which the tensor meets none of the placed tensors that live at the same time.
int64_t lowest_free_offset(const TensorPlan& tensor, std::vector<const TensorPlan*> placed,
                           bool share) {
  std::ranges::sort(placed, {}, &TensorPlan::workspace_offset);
  int64_t offset = 0;
  for (const TensorPlan* other : placed) {
    if (share && !lifetimes_overlap(tensor, *other)) continue;
    if (offset + tensor.bytes <= other->workspace_offset) break;
    offset = std::max(offset, align_up(other->workspace_offset + other->bytes));
  }
  return offset;
}

}  // namespace

int64_t plan_workspace(Plan& plan, const PlanOptions& options) {
  find_lifetimes(plan);
  std::vector<TensorPlan*> largest_first;
  for (TensorPlan& tensor : plan.tensors)
    if (tensor.role == TensorRole::kWorkspace) largest_first.push_back(&tensor);
  std::ranges::stable_sort(largest_first, std::greater<>{}, &TensorPlan::bytes);

  std::vector<const TensorPlan*> placed;
  int64_t total = 0;
  for (TensorPlan* tensor : largest_first) {
    tensor->workspace_offset = lowest_free_offset(*tensor, placed, !options.keep_intermediates);
    total = std::max(total, align_up(tensor->workspace_offset + tensor->bytes));
    placed.push_back(tensor);
  }
  return total;
}

int64_t plan_saved(Plan& plan) {
  int64_t total = 0;
  for (TensorPlan& tensor : plan.tensors) {
    if (tensor.role != TensorRole::kSaved) continue;
    tensor.saved_offset = total;
    total += align_up(tensor.bytes);
  }
  return total;
}

}  // namespace moejit::compiler
