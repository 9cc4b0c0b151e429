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

// Upper bound on the tensors of any plan, so that the layout of a call fits on the stack.
inline constexpr std::size_t kMostTensors = 144;

// Alignment of tensors in their block. TMA descriptors want 128 bytes, cudaMalloc gives 256.
inline constexpr int64_t kOffsetAlignment = 256;
constexpr int64_t align_offset(int64_t bytes) {
  return (bytes + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment;
}

// Bytes of memory that a call needs.
struct MemorySizes {
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t deferred_bytes = 0;
  bool operator==(const MemorySizes&) const = default;
};

// A block of memory of a call, which has the tensors of one role.
struct MemoryBlock {
  TensorRole role = TensorRole::kWorkspace;
  int64_t MemorySizes::*bytes = nullptr;
  BlockUse CallPlan::*use = nullptr;
};
inline constexpr std::array kMemoryBlocks = {
    MemoryBlock{TensorRole::kWorkspace, &MemorySizes::workspace_bytes, &CallPlan::workspace},
    MemoryBlock{TensorRole::kSaved, &MemorySizes::saved_bytes, &CallPlan::saved},
    MemoryBlock{TensorRole::kDeferred, &MemorySizes::deferred_bytes, &CallPlan::deferred},
};

// Places of a plan's tensors in a call over `dims.tokens` tokens: offset in their block and bytes,
// in the order of Plan::tensors. Tensors of callers have 0.
struct CallLayout {
  CallDims dims;
  MemorySizes sizes;
  std::array<int64_t, kMostTensors> offset{};
  std::array<int64_t, kMostTensors> bytes{};
};

// Lays out the memory of calls with fewer tokens than a plan is made for. A call with max_tokens
// has the plan's offsets. In a smaller call each tensor takes only the bytes that it needs. It
// begins where the last of the tensors below it in the plan ends. Tensors that do not overlap in
// the plan do not overlap in any call and keep their order. A call never needs more memory than a
// call with more tokens.
class MemoryLayout {
 public:
  MemoryLayout() = default;  // the layout of a plan without tensors
  // Makes the layout of the plan's calls. Error kInternal: the plan has more than kMostTensors.
  static Result<MemoryLayout> make(const Plan& plan);

  // Returns the layout of a call over T tokens, from 0 to max_tokens. Allocates nothing.
  CallLayout at(int64_t tokens) const;

  // Returns the bytes of a call's blocks. Error kInvalidValue: T less than 0, or more than
  // max_tokens.
  Result<MemorySizes> sizes(int64_t tokens) const;

  // Returns the tensors of a block, as indices into Plan::tensors; the block by its index in
  // kMemoryBlocks.
  const std::vector<std::size_t>& slots(std::size_t block) const { return blocks_[block].slots; }

  // Return linear bounds on the bytes of the saved and of the deferred block, which other programs
  // can compute. A call that leaves such a block needs the lesser of the bound and of the plan's
  // saved_bytes or deferred_bytes.
  const LinearBound& saved_bound() const { return saved_bound_; }
  const LinearBound& deferred_bound() const { return deferred_bound_; }

 private:
  struct Item {
    std::size_t slot = 0;  // index into Plan::tensors
    std::optional<CallDim> dim;
    int64_t unit_bytes = 0;       // for each element of `dim`, or for the whole tensor without it
    std::size_t below_begin = 0;  // range in Block::below
    std::size_t below_end = 0;
  };
  struct Block {
    std::vector<std::size_t> slots;  // of the items
    std::vector<Item> items;         // ordered by their offset in the plan
    std::vector<std::size_t> below;  // for each item, the items right below it
  };
  static Block make_block(const Plan& plan, TensorRole role);
  static LinearBound bound_of(const CallBounds& bounds, const Block& block);
  // Places the block's tensors for the dims of `layout`, and returns where the last one ends.
  static int64_t place(const Block& block, CallLayout& layout);

  CallBounds bounds_;
  std::string subject_;  // Plan::subject, for errors
  int64_t saved_bytes_ = 0;
  int64_t deferred_bytes_ = 0;
  LinearBound saved_bound_;
  LinearBound deferred_bound_;
  std::array<Block, kMemoryBlocks.size()> blocks_;  // in the order of kMemoryBlocks
};

}  // namespace moejit::compiler
