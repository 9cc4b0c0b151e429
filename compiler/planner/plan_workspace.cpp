// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/memory_layout.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::compiler {
namespace {

// The first and the last kernel of each call that touch a tensor. The workspace is free between
// calls, so a tensor that two calls use has two spans.
struct Lifetime {
  struct Span {
    int32_t first = -1, last = -1;
  };
  std::array<Span, kPhaseCount + 1> of_call;  // of each phase, and the last of a second part

  Span& of(const Operation& operation) {
    return is_second(operation.half) ? of_call.back()
                                     : of_call[static_cast<size_t>(operation.phase)];
  }
  bool overlaps(const Lifetime& other) const {
    for (size_t call = 0; call < of_call.size(); ++call) {
      const Span &a = of_call[call], &b = other.of_call[call];
      if (a.first >= 0 && b.first >= 0 && a.first <= b.last && b.first <= a.last) return true;
    }
    return false;
  }
};

bool touches(const CollectivePlan& step, std::string_view tensor) {
  return std::ranges::any_of(step.moves, [&](const BlockMove& move) {
    return move.source == tensor || move.destination == tensor;
  });
}

Lifetime lifetime_of(const Plan& plan, std::span<const Operation* const> operations,
                     std::string_view tensor) {
  Lifetime lifetime;
  const auto add = [&](size_t kernel) {
    Lifetime::Span& span =
        operations.empty() ? lifetime.of_call.front() : lifetime.of(*operations[kernel]);
    const auto index = static_cast<int32_t>(kernel);
    span.first = span.first < 0 ? index : std::min(span.first, index);
    span.last = std::max(span.last, index);
  };
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    if (touches(plan.kernels[i], tensor)) add(i);
  // A step lives between two kernels, and no tensor of either kernel may take its memory.
  for (const CollectivePlan& step : plan.collectives) {
    if (!touches(step, tensor)) continue;
    add(static_cast<size_t>(step.before) - 1);
    add(static_cast<size_t>(step.before));
  }
  return lifetime;
}

// Sets the first and the last use of a tensor over all calls.
void set_uses(TensorPlan& tensor, const Lifetime& lifetime) {
  for (const Lifetime::Span& span : lifetime.of_call) {
    if (span.first < 0) continue;
    tensor.first_use = tensor.first_use < 0 ? span.first : std::min(tensor.first_use, span.first);
    tensor.last_use = std::max(tensor.last_use, span.last);
  }
}

struct Placed {
  TensorPlan* tensor = nullptr;
  Lifetime lifetime;
  int64_t offset = 0;

  int64_t end() const { return align_offset(offset + tensor->bytes); }
};

// Returns the lowest offset at which the item overlaps no earlier item that lives at the same time.
int64_t lowest_free_offset(const Placed& item, std::span<const Placed> before, bool shares) {
  std::vector<const Placed*> others;
  for (const Placed& other : before)
    if (!shares || item.lifetime.overlaps(other.lifetime)) others.push_back(&other);
  std::ranges::sort(others, {}, &Placed::offset);
  int64_t offset = 0;
  for (const Placed* other : others) {
    if (offset + item.tensor->bytes <= other->offset) break;
    offset = std::max(offset, other->end());
  }
  return offset;
}

// Gives the items their offsets, in this order, and returns the index of the first item with the
// highest end.
size_t place(std::vector<Placed>& items, bool shares) {
  size_t highest = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].offset = lowest_free_offset(items[i], std::span(items).first(i), shares);
    if (items[i].end() > items[highest].end()) highest = i;
  }
  return highest;
}

}  // namespace

// Places the largest tensors first, which leaves gaps. Then the tensor with the highest end, which
// did not fit into a gap, moves to the front of the order, up to 64 times. The best of these orders
// is used.
int64_t plan_workspace(Plan& plan, std::span<const Operation* const> operations,
                       const PlanOptions& options) {
  constexpr int kOrders = 64;
  std::vector<Placed> items;
  for (TensorPlan& tensor : plan.tensors) {
    const Lifetime lifetime = lifetime_of(plan, operations, tensor.name);
    set_uses(tensor, lifetime);
    if (tensor.role == TensorRole::kWorkspace) items.push_back({&tensor, lifetime});
  }
  if (items.empty()) return 0;
  std::ranges::stable_sort(items, std::greater<>{},
                           [](const Placed& item) { return item.tensor->bytes; });
  int64_t total = std::numeric_limits<int64_t>::max();
  for (int order = 0; order < kOrders; ++order) {
    const size_t highest = place(items, !options.keep_intermediates);
    if (items[highest].end() < total) {
      total = items[highest].end();
      for (const Placed& item : items) item.tensor->workspace_offset = item.offset;
    }
    std::rotate(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(highest),
                items.begin() + static_cast<std::ptrdiff_t>(highest) + 1);
  }
  return total;
}

namespace {

// Places the tensors of a role one behind the other, and returns the bytes needed.
int64_t plan_block(Plan& plan, TensorRole role, int64_t TensorPlan::*offset) {
  int64_t total = 0;
  for (TensorPlan& tensor : plan.tensors) {
    if (tensor.role != role) continue;
    tensor.*offset = total;
    total += align_offset(tensor.bytes);
  }
  return total;
}

}  // namespace

int64_t plan_saved(Plan& plan) {
  return plan_block(plan, TensorRole::kSaved, &TensorPlan::saved_offset);
}

int64_t plan_deferred(Plan& plan) {
  return plan_block(plan, TensorRole::kDeferred, &TensorPlan::deferred_offset);
}

std::vector<SavedMemory> compare_saved_memory(const Plan& plan) {
  std::vector<SavedMemory> all;
  if (!plan.layer || !has_backward(*plan.layer)) return all;
  std::vector<Recipe> recipes = {plan.layer->recipe};
  if (plan.layer->recipe != Recipe::kBf16) recipes.push_back(Recipe::kBf16);
  for (const Recipe& recipe : recipes) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
      Layer layer = *plan.layer;
      layer.recipe = recipe;
      layer.recompute = recompute;
      if (!has_scales(recipe.tokens)) {  // bf16 does not have these choices
        layer.scale_sharing_k = 1;
        layer.dispatch = Dispatch::kNone;
        layer.dispatch_calls = false;
      }
      const int32_t least = least_splits_alignment(recipe, true);
      set_splits_alignment(layer, (layer.splits_alignment + least - 1) / least * least);
      const Result<Plan> other = plan_layer(layer, plan.target);
      if (other) all.push_back({recipe, recompute, other->saved_bytes});
    }
  }
  return all;
}

}  // namespace moejit::compiler
