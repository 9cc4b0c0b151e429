// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace moejit::compiler {

// More tensors than any plan has: what a call needs fits on the stack.
inline constexpr std::size_t kMostTensors = 96;

// Tensors begin at multiples of this in their block. TMA descriptors want 128 bytes, cudaMalloc
// gives 256.
inline constexpr int64_t kOffsetAlignment = 256;
constexpr int64_t align_offset(int64_t bytes) {
  return (bytes + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment;
}

// What a call needs, in bytes.
struct MemorySizes {
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t deferred_bytes = 0;
  bool operator==(const MemorySizes&) const = default;
};

// The blocks of memory of a call, each of which has the tensors of one role.
struct MemoryBlock {
  TensorRole role = TensorRole::kWorkspace;
  int64_t MemorySizes::*bytes = nullptr;
};
inline constexpr std::array kMemoryBlocks = {
    MemoryBlock{TensorRole::kWorkspace, &MemorySizes::workspace_bytes},
    MemoryBlock{TensorRole::kSaved, &MemorySizes::saved_bytes},
    MemoryBlock{TensorRole::kDeferred, &MemorySizes::deferred_bytes},
};

// Where the tensors of a plan are in a call over `dims.tokens` tokens: offset in their block, and
// bytes, in the order of Plan::tensors. Tensors of callers have 0.
struct CallLayout {
  CallDims dims;
  MemorySizes sizes;
  std::array<int64_t, kMostTensors> offset{};
  std::array<int64_t, kMostTensors> bytes{};
};

// The memory of calls with fewer tokens than a plan is made for. A call with max_tokens has the
// plan's offsets. In every other one a tensor is as large as it has to be, and lies right behind
// the last of those that it lies behind in the plan: what is apart there is apart in all calls, in
// the same order, and a call never needs more than one with more tokens.
class MemoryLayout {
 public:
  MemoryLayout() = default;  // of a plan without tensors
  // Makes the layout of the plan's calls. Error kInternal: the plan has more than kMostTensors.
  static Result<MemoryLayout> make(const Plan& plan);

  // Returns the layout of a call over T tokens, from 0 to max_tokens. Allocates nothing.
  CallLayout at(int64_t tokens) const;

  // Returns the bytes of a call's blocks. Error kInvalidValue: T less than 0, or more than
  // max_tokens.
  Result<MemorySizes> sizes(int64_t tokens) const;

  // Bytes that one call leaves for another are the lesser of these and of the plan's saved_bytes or
  // deferred_bytes: what the tensors of that block need at most, as a line that others can compute.
  const LinearBound& saved_bound() const { return saved_bound_; }
  const LinearBound& deferred_bound() const { return deferred_bound_; }

 private:
  struct Item {
    std::size_t slot = 0;  // in Plan::tensors
    std::optional<CallDim> dim;
    int64_t unit_bytes = 0;       // for each one of `dim`, or of all
    std::size_t below_begin = 0;  // in Block::below
    std::size_t below_end = 0;
  };
  struct Block {
    std::vector<Item> items;         // by their offset in the plan
    std::vector<std::size_t> below;  // items that one lies right behind
  };
  static Block make_block(const Plan& plan, TensorRole role);
  static LinearBound bound_of(const CallBounds& bounds, const Block& block);
  // Gives the block's tensors their places, for the dims of `layout`, and returns their end.
  static int64_t place(const Block& block, CallLayout& layout);

  CallBounds bounds_;
  std::string subject_;  // of the plan
  int64_t saved_bytes_ = 0;
  int64_t deferred_bytes_ = 0;
  LinearBound saved_bound_;
  LinearBound deferred_bound_;
  std::array<Block, kMemoryBlocks.size()> blocks_;  // in that order
};

}  // namespace moejit::compiler
