// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/bound_tensors.h"

#include "compiler/launch.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

namespace moejit::runtime {
namespace {

using compiler::KernelPlan;
using compiler::Phase;
using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;

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

// Returns whether calls of this part have the block: forward calls have no deferred one.
bool has_block(const CallPart& part, TensorRole role) {
  return role != TensorRole::kDeferred || part.phase == Phase::kBackward;
}

// Returns whether a call reads a block, but does not write it.
bool only_reads(const CallPart& part, TensorRole role) {
  if (role == TensorRole::kSaved) return part.phase != Phase::kForward;
  return role == TensorRole::kDeferred && part.half == compiler::BackwardHalf::kWeights;
}

std::string names_of(const Plan& plan, const TensorSet& wanted) {
  std::string names;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (wanted[slot]) names += (names.empty() ? "" : ", ") + plan.tensors[slot].name;
  return names;
}

tl::unexpected<Error> unknown_name(const Plan& plan, const TensorSet& wanted,
                                   std::string_view name) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: {} has no caller's tensor of this name, "
                          "wanted {}",
                          name, plan.subject, names_of(plan, wanted)));
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
                "the prepared layer's sizes() or moejit_layer_get_sizes() have the bytes");
  if (given.address == nullptr && wanted_bytes > 0)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address is null, wanted {} bytes", name, wanted_bytes));
  if (!is_aligned(given.address, static_cast<std::uintptr_t>(alignment)))
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address {} is not a multiple of {}", name,
                            fmt::ptr(given.address), alignment));
  return {};
}

// Sets P and C. Kernels write rows wherever a route sends them, so P must suffice for any route.
Result<void> settle_dims(const Plan& plan, const compiler::CallDims& of_tokens,
                         BoundTensors& bound) {
  const ToldDims& told = bound.told;
  bound.dims = of_tokens;
  if (told.columns != kUntold) bound.dims.columns = told.columns;
  if (told.rows == kUntold) return {};
  bound.dims.rows = told.rows;
  const int64_t wanted =
      told.tokens == kUntold ? 0 : compiler::most_permuted_rows(plan.bounds, told.tokens);
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
        if (one.begin < other.end && other.begin < one.end)
          return one.slot < other.slot ? overlap(plan, one, other) : overlap(plan, other, one);
      }
    return {};
  }

 private:
  std::array<Range, kMostTensors + kBlocksOfCall.size()> ranges_;
  std::size_t count_ = 0, written_ = 0;
};

}  // namespace

TensorSet tensors_of_call(const Plan& plan, const CallPart& part) {
  TensorSet set;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    set[slot] = is_callers(plan.tensors[slot].role) && is_used(plan, plan.tensors[slot], part);
  return set;
}

TensorSet tensors_written(const Plan& plan, const CallPart& part) {
  TensorSet set = tensors_of_call(plan, part);
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    set[slot] = set[slot] && std::ranges::any_of(plan.kernels, [&](const KernelPlan& kernel) {
                  return is_of_part(kernel, part) && writes(kernel, plan.tensors[slot].name);
                });
  return set;
}

TensorSet tensors_of_shape(const Plan& plan, const CallPart& part) {
  TensorSet set;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    set[slot] = is_used_for_shape(plan, plan.tensors[slot], part.half);
  return set;
}

std::vector<std::size_t> slots_of_callers(const Plan& plan) {
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (is_callers(plan.tensors[slot].role)) slots.push_back(slot);
  return slots;
}

Result<void> bind_tensors(const Plan& plan, std::span<const std::size_t> callers,
                          compiler::Phase phase, const TensorSet& wanted, const TensorSet& shapes,
                          std::span<const TensorRef> tensors, BoundTensors& bound) {
  TensorSet missing = wanted | shapes;
  auto next = callers.begin();  // callers mostly give tensors in the order of the plan
  for (const TensorRef& tensor : tensors) {
    const auto is_meant = [&](std::size_t slot) { return plan.tensors[slot].name == tensor.name; };
    auto found = std::find_if(next, callers.end(), is_meant);
    if (found == callers.end()) found = std::ranges::find_if(callers, is_meant);
    if (found == callers.end()) return unknown_name(plan, wanted, tensor.name);
    const std::size_t slot = *found;
    next = found + 1;
    if (wanted[slot])
      MOEJIT_TRY(bind_one(plan.tensors[slot], tensor, slot, bound));
    else if (shapes[slot])
      MOEJIT_TRY(check_type(plan.tensors[slot], tensor, bound.told));
    missing.reset(slot);
  }
  if (missing.any())
    for (const std::size_t slot : callers)
      if (missing[slot] && !is_optional(plan.tensors[slot], phase))
        return fail(
            Stage::kLaunch, ErrorCode::kMissingTensor,
            fmt::format("tensor {} is missing, wanted {} {}", plan.tensors[slot].name,
                        to_string(plan.tensors[slot].dtype), wanted_shape(plan.tensors[slot])));
  const auto& [tokens, rows, columns] = bound.told;
  bound.dims.tokens = std::max<int64_t>(tokens != kUntold ? tokens
                                        : rows != kUntold ? rows
                                                          : columns,
                                        0);
  return {};
}

Result<void> bind_memory(const Plan& plan, const compiler::MemoryLayout& layout,
                         const compiler::CallLayout& call, const CallPart& part, int64_t alignment,
                         const CallMemory& memory, BoundTensors& bound) {
  MOEJIT_TRY(settle_dims(plan, call.dims, bound));
  for (std::size_t block = 0; block < kBlocksOfCall.size(); ++block) {
    if (!has_block(part, compiler::kMemoryBlocks[block].role)) continue;
    const auto& [name, address, bytes] = kBlocksOfCall[block];
    const int64_t wanted = call.sizes.*compiler::kMemoryBlocks[block].bytes;
    MOEJIT_TRY(
        check_block(name, {memory.*address, memory.*bytes}, wanted, call.dims.tokens, alignment));
    bound.blocks[block] = {memory.*address, wanted};
    auto* const base = static_cast<std::byte*>(memory.*address);
    for (const std::size_t slot : layout.slots(block)) {
      bound.address[slot] = base + call.offset[slot];
      bound.bytes[slot] = call.bytes[slot];
      bound.is_bound[slot] = true;
    }
  }
  return {};
}

Result<void> check_overlaps(const Plan& plan, std::span<const std::size_t> callers,
                            const CallPart& part, const TensorSet& written,
                            const BoundTensors& bound) {
  Ranges ranges;
  for (const std::size_t slot : callers)
    if (bound.is_bound[slot])
      ranges.add(slot, {bound.address[slot], bound.bytes[slot]}, written[slot]);
  for (std::size_t block = 0; block < bound.blocks.size(); ++block) {
    const bool is_written = !only_reads(part, compiler::kMemoryBlocks[block].role);
    ranges.add(plan.tensors.size() + block, bound.blocks[block], is_written);
  }
  return ranges.check(plan);
}

}  // namespace moejit::runtime
