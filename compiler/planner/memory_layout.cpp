// SPDX-License-Identifier: Apache-2.0
#include "compiler/memory_layout.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

int64_t end_of(const TensorPlan& tensor) {
  return align_offset(block_offset(tensor) + tensor.bytes);
}

// Returns the bytes of a tensor for each element of the dimension that changes from call to call.
int64_t unit_bytes_of(const TensorPlan& tensor) {
  int64_t bytes = size_bytes(tensor.dtype);
  for (const Dim& dim : tensor.shape)
    if (!call_dim(dim)) bytes *= dim.value;
  return bytes;
}

std::vector<std::size_t> slots_by_offset(const Plan& plan, TensorRole role) {
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (plan.tensors[slot].role == role) slots.push_back(slot);
  std::ranges::stable_sort(slots, {}, [&](auto slot) { return block_offset(plan.tensors[slot]); });
  return slots;
}

}  // namespace

// A tensor lies right behind each tensor that ends before it, unless a third tensor lies between
// the two.
MemoryLayout::Block MemoryLayout::make_block(const Plan& plan, TensorRole role) {
  Block block;
  block.slots = slots_by_offset(plan, role);
  const std::vector<std::size_t>& slots = block.slots;
  const auto is_behind = [&](std::size_t one, std::size_t other) {
    return end_of(plan.tensors[slots[other]]) <= block_offset(plan.tensors[slots[one]]);
  };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[slots[i]];
    Item item{.slot = slots[i],
              .dim = call_dim(tensor),
              .unit_bytes = unit_bytes_of(tensor),
              .below_begin = block.below.size()};
    for (std::size_t j = 0; j < i; ++j) {
      bool is_right_behind = is_behind(i, j);
      for (std::size_t between = j + 1; is_right_behind && between < i; ++between)
        is_right_behind = !(is_behind(i, between) && is_behind(between, j));
      if (is_right_behind) block.below.push_back(j);
    }
    item.below_end = block.below.size();
    block.items.push_back(item);
  }
  return block;
}

// Bounds the bytes of the block's tensors as if they lay one behind the other.
LinearBound MemoryLayout::bound_of(const CallBounds& bounds, const Block& block) {
  LinearBound sum;
  for (const Item& item : block.items) {
    if (!item.dim) {
      sum.fixed += align_offset(item.unit_bytes);
      continue;
    }
    const LinearBound bytes = bound_bytes(bounds, *item.dim, item.unit_bytes);
    sum.fixed += bytes.fixed + kOffsetAlignment - 1;
    sum.per_token += bytes.per_token;
  }
  sum.fixed = align_offset(sum.fixed);
  return sum;
}

Result<MemoryLayout> MemoryLayout::make(const Plan& plan) {
  if (plan.tensors.size() > kMostTensors)
    return fail(Stage::kPlan, ErrorCode::kInternal,
                fmt::format("the plan has {} tensors, wanted at most {}", plan.tensors.size(),
                            kMostTensors));
  MemoryLayout layout;
  const CallBounds bounds = plan.bounds;
  layout.bounds_ = bounds;
  layout.subject_ = plan.subject;
  layout.saved_bytes_ = plan.saved_bytes;
  layout.deferred_bytes_ = plan.deferred_bytes;
  for (std::size_t i = 0; i < kMemoryBlocks.size(); ++i) {
    layout.blocks_[i] = make_block(plan, kMemoryBlocks[i].role);
    if (kMemoryBlocks[i].role == TensorRole::kSaved)
      layout.saved_bound_ = bound_of(bounds, layout.blocks_[i]);
    if (kMemoryBlocks[i].role == TensorRole::kDeferred)
      layout.deferred_bound_ = bound_of(bounds, layout.blocks_[i]);
  }
  return layout;
}

CallLayout MemoryLayout::at(int64_t tokens) const {
  CallLayout layout{.dims = call_dims(bounds_, tokens)};
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    layout.sizes.*kMemoryBlocks[b].bytes = place(blocks_[b], layout);
  const auto on_line = [&](int64_t bytes, const LinearBound& bound) {
    return std::min(bytes, bound.fixed + tokens * bound.per_token);
  };
  layout.sizes.saved_bytes = on_line(saved_bytes_, saved_bound_);
  layout.sizes.deferred_bytes = on_line(deferred_bytes_, deferred_bound_);
  return layout;
}

int64_t MemoryLayout::place(const Block& block, CallLayout& layout) {
  std::array<int64_t, kMostTensors> ends;  // of the items placed so far
  int64_t end = 0;
  for (std::size_t i = 0; i < block.items.size(); ++i) {
    const Item& item = block.items[i];
    int64_t offset = 0;
    for (std::size_t below = item.below_begin; below < item.below_end; ++below)
      offset = std::max(offset, ends[block.below[below]]);
    const int64_t bytes = item.unit_bytes * (item.dim ? layout.dims.size(*item.dim) : 1);
    layout.offset[item.slot] = offset;
    layout.bytes[item.slot] = bytes;
    ends[i] = align_offset(offset + bytes);
    end = std::max(end, ends[i]);
  }
  return end;
}

Result<MemorySizes> MemoryLayout::sizes(int64_t tokens) const {
  if (tokens >= 0 && tokens <= bounds_.max_tokens) return at(tokens).sizes;
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("a call of {} with {} tokens, wanted 0 to {}", subject_, tokens,
                          bounds_.max_tokens));
}

}  // namespace moejit::compiler
