// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/bound_tensors.h"

#include "compiler/launch.h"

#include <algorithm>
#include <bitset>
#include <fmt/format.h>
#include <string>

namespace moejit::runtime {
namespace {

using compiler::BlockUse;
using compiler::CallPlan;
using compiler::CallTensor;
using compiler::Plan;
using compiler::TensorPlan;

constexpr std::uintptr_t kTensorAlignment = 16;
constexpr int64_t kUntold = ToldDims::kUntold;

// A block as callers know it. The blocks are in the order of kMemoryBlocks.
struct BlockOfCall {
  std::string_view name;
  void* CallMemory::*address;
  int64_t CallMemory::*bytes;
};
constexpr std::array kBlocksOfCall = {
    BlockOfCall{"workspace", &CallMemory::workspace, &CallMemory::workspace_bytes},
    BlockOfCall{"saved block", &CallMemory::saved, &CallMemory::saved_bytes},
    BlockOfCall{"deferred block", &CallMemory::deferred, &CallMemory::deferred_bytes},
};
static_assert(kBlocksOfCall.size() == compiler::kMemoryBlocks.size());

bool is_aligned(const void* address, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

BlockUse use_of(const CallPlan& call, std::size_t block) {
  return call.*compiler::kMemoryBlocks[block].use;
}

std::string names_of(const Plan& plan, const CallPlan& call) {
  std::string names;
  for (const CallTensor& tensor : call.tensors)
    if (!tensor.is_shape_only)
      names += (names.empty() ? "" : ", ") + plan.tensors[tensor.slot].name;
  return names;
}

// Returns the bytes of a block that the call needs.
int64_t bytes_needed(const CallPlan& call, std::size_t block, const compiler::MemorySizes& sizes) {
  const compiler::MemoryBlock& of = compiler::kMemoryBlocks[block];
  const int64_t bytes = sizes.*of.bytes;
  return of.role == compiler::TensorRole::kWorkspace ? std::min(bytes, call.workspace_bytes)
                                                     : bytes;
}

// Checks the name of a tensor that the call does not take: other calls of the plan may.
Result<void> check_other_name(const Plan& plan, const CallPlan& call, std::string_view name) {
  const TensorPlan* const other = find_tensor(plan, name);
  if (other != nullptr && is_callers(other->role)) return {};
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: {} has no caller's tensor of this name, "
                          "wanted {}",
                          name, plan.subject, names_of(plan, call)));
}

int64_t bytes_of(const TensorRef& tensor) {
  int64_t bytes = size_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

Result<void> bind_one(const TensorPlan& plan, const TensorRef& tensor, std::size_t slot,
                      BoundTensors& bound) {
  if (bound.is_bound[slot]) return tensor_mismatch(plan, "it is given twice");
  MOEJIT_TRY(check_type(plan, tensor, bound.told));
  const int64_t bytes = bytes_of(tensor);
  if (tensor.data == nullptr && bytes > 0)
    return tensor_mismatch(plan, fmt::format("its address is null, wanted {} bytes", bytes));
  if (!is_aligned(tensor.data, kTensorAlignment))
    return tensor_mismatch(
        plan,
        fmt::format("its address {} is not a multiple of {}", fmt::ptr(tensor.data),
                    kTensorAlignment),
        fmt::format("kernels move {} bytes at a time: begin each tensor of a larger buffer at a "
                    "multiple of as many, or give a copy",
                    kTensorAlignment));
  bound.address[slot] = tensor.data;
  bound.bytes[slot] = bytes;
  bound.is_bound[slot] = true;
  return {};
}

Result<void> check_block(std::string_view name, const BoundMemory& given, int64_t wanted_bytes,
                         int64_t tokens, int64_t alignment) {
  if (given.bytes < wanted_bytes)
    return fail(Stage::kLaunch, ErrorCode::kWorkspaceTooSmall,
                fmt::format("the {} has {} bytes, wanted {} for {} tokens", name, given.bytes,
                            wanted_bytes, tokens),
                "the prepared layer's sizes() or moejit_plan_get_sizes() have the bytes");
  if (given.address == nullptr && wanted_bytes > 0)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address is null, wanted {} bytes", name, wanted_bytes));
  if (!is_aligned(given.address, static_cast<std::uintptr_t>(alignment)))
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address {} is not a multiple of {}", name,
                            fmt::ptr(given.address), alignment));
  return {};
}

// Sets P and C. Kernels write rows wherever a route sends them, so P must suffice for any route,
// unless the description leaves that to the caller.
Result<void> settle_dims(const Plan& plan, const compiler::CallDims& of_tokens,
                         BoundTensors& bound) {
  const ToldDims& told = bound.told;
  bound.dims = of_tokens;
  if (told.columns != kUntold) bound.dims.columns = told.columns;
  if (told.rows == kUntold) return {};
  bound.dims.rows = told.rows;
  const bool is_free = told.tokens == kUntold || plan.bounds.takes_any_rows;
  const int64_t wanted = is_free ? 0 : compiler::most_permuted_rows(plan.bounds, told.tokens);
  if (told.rows >= wanted) return {};
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("the tensors with permuted rows have {}, wanted at least {}, which {} "
                          "tokens may need",
                          told.rows, wanted, told.tokens),
              "give them as many rows, or the max_permuted_rows of the description");
}

// Memory of a call: a tensor or a block.
struct Range {
  std::uintptr_t begin, end;
  std::size_t slot;  // index in the plan; blocks come after all tensors
};

std::string name_of(const Plan& plan, const Range& range) {
  if (range.slot < plan.tensors.size()) return "tensor " + plan.tensors[range.slot].name;
  return fmt::format("the {}", kBlocksOfCall[range.slot - plan.tensors.size()].name);
}

tl::unexpected<Error> overlap(const Plan& plan, const Range& one, const Range& other) {
  return fail(
      Stage::kLaunch, ErrorCode::kTensorMismatch,
      fmt::format("{}, at {:#x} to {:#x}, overlaps {}, at {:#x} to {:#x}", name_of(plan, one),
                  one.begin, one.end, name_of(plan, other), other.begin, other.end),
      "give outputs and blocks memory of their own");
}

// Returns whether `read` is an input that no kernel reads once the tensor `written` is touched.
bool is_read_before(const Plan& plan, const Range& read, const Range& written) {
  if (std::max(read.slot, written.slot) >= plan.tensors.size()) return false;
  const TensorPlan& input = plan.tensors[read.slot];
  return input.role == compiler::TensorRole::kInput &&
         input.last_use < plan.tensors[written.slot].first_use;
}

// The memory that a call uses: written ranges first, otherwise in no order. It is on the stack, and
// only its used part is touched.
class Ranges {
 public:
  void add(std::size_t slot, const BoundMemory& memory, bool is_written) {
    if (memory.bytes <= 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.address);
    ranges_[count_] = {begin, begin + static_cast<std::uintptr_t>(memory.bytes), slot};
    if (is_written) std::swap(ranges_[count_], ranges_[written_++]);
    ++count_;
  }
  // Compares every pair with a written range: a few written ranges with a few dozen others.
  Result<void> check(const Plan& plan) const {
    for (std::size_t i = 0; i < written_; ++i)
      for (std::size_t j = i + 1; j < count_; ++j) {
        const Range &one = ranges_[i], &other = ranges_[j];
        if (one.begin < other.end && other.begin < one.end &&
            (j < written_ || !is_read_before(plan, other, one)))
          return one.slot < other.slot ? overlap(plan, one, other) : overlap(plan, other, one);
      }
    return {};
  }

 private:
  std::array<Range, kMostTensors + kBlocksOfCall.size()> ranges_;
  std::size_t count_ = 0, written_ = 0;
};

}  // namespace

std::size_t CallTensorSearch::find(std::string_view name) {
  const std::size_t count = call_.tensors.size();
  for (std::size_t tried = 0; tried < count; ++tried) {
    const std::size_t i = (next_ + tried) % count;
    if (plan_.tensors[call_.tensors[i].slot].name != name) continue;
    next_ = i + 1;
    return i;
  }
  return count;
}

Result<void> bind_tensors(const Plan& plan, const CallPlan& call,
                          std::span<const TensorRef> tensors, BoundTensors& bound) {
  std::bitset<kMostTensors> given;  // by index in the call
  CallTensorSearch search(plan, call);
  for (const TensorRef& tensor : tensors) {
    const std::size_t found = search.find(tensor.name);
    if (found == call.tensors.size()) {
      MOEJIT_TRY(check_other_name(plan, call, tensor.name));
      continue;
    }
    const CallTensor& taken = call.tensors[found];
    const TensorPlan& wanted = plan.tensors[taken.slot];
    MOEJIT_TRY(taken.is_shape_only ? check_type(wanted, tensor, bound.told)
                                   : bind_one(wanted, tensor, taken.slot, bound));
    given.set(found);
  }
  for (std::size_t i = 0; i < call.tensors.size(); ++i)
    if (!given[i] && !call.tensors[i].is_optional) {
      const TensorPlan& wanted = plan.tensors[call.tensors[i].slot];
      return fail(Stage::kLaunch, ErrorCode::kMissingTensor,
                  fmt::format("tensor {} is missing, wanted {} {}", wanted.name,
                              to_string(wanted.dtype), wanted_shape(wanted)));
    }
  const auto& [tokens, rows, columns] = bound.told;
  bound.dims.tokens = std::max<int64_t>(tokens != kUntold ? tokens
                                        : rows != kUntold ? rows
                                                          : columns,
                                        0);
  return {};
}

Result<void> bind_memory(const Plan& plan, const compiler::MemoryLayout& layout,
                         const compiler::CallLayout& places, const CallPlan& call,
                         int64_t alignment, const CallMemory& memory, BoundTensors& bound) {
  MOEJIT_TRY(settle_dims(plan, places.dims, bound));
  for (std::size_t block = 0; block < kBlocksOfCall.size(); ++block) {
    if (use_of(call, block) == BlockUse::kNone) continue;
    const auto& [name, address, bytes] = kBlocksOfCall[block];
    const int64_t wanted = bytes_needed(call, block, places.sizes);
    MOEJIT_TRY(
        check_block(name, {memory.*address, memory.*bytes}, wanted, places.dims.tokens, alignment));
    bound.blocks[block] = {memory.*address, wanted};
    auto* const base = static_cast<std::byte*>(memory.*address);
    for (const std::size_t slot : layout.slots(block)) {
      bound.address[slot] = base + places.offset[slot];
      bound.bytes[slot] = places.bytes[slot];
      bound.is_bound[slot] = true;
    }
  }
  return {};
}

std::byte* address_in_group(const compiler::TensorPlan& tensor, std::span<std::byte* const> group) {
  if (tensor.rank < 0 || tensor.rank >= std::ssize(group)) return nullptr;
  std::byte* const memory = group[static_cast<std::size_t>(tensor.rank)];
  return memory == nullptr ? nullptr : memory + tensor.group_offset;
}

Result<void> check_overlaps(const Plan& plan, const CallPlan& call, const BoundTensors& bound) {
  Ranges ranges;
  for (const CallTensor& tensor : call.tensors)
    if (bound.is_bound[tensor.slot])
      ranges.add(tensor.slot, {bound.address[tensor.slot], bound.bytes[tensor.slot]},
                 writes(tensor.access));
  for (std::size_t block = 0; block < bound.blocks.size(); ++block)
    ranges.add(plan.tensors.size() + block, bound.blocks[block],
               use_of(call, block) == BlockUse::kWrite);
  return ranges.check(plan);
}

}  // namespace moejit::runtime
