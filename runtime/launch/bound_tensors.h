// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/plan.h"
#include "runtime/call.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moejit::runtime {

using compiler::kMostTensors;

// Finds tensors of a call by name. Callers mostly give tensors in the order of the plan, so each
// search begins after the tensor that was found last.
class CallTensorSearch {
 public:
  // Both must live longer.
  CallTensorSearch(const compiler::Plan& plan, const compiler::CallPlan& call)
      : plan_(plan), call_(call) {}

  // Returns the index of the tensor in CallPlan::tensors; their number if the call does not take
  // it.
  std::size_t find(std::string_view name);

 private:
  const compiler::Plan& plan_;
  const compiler::CallPlan& call_;
  std::size_t next_ = 0;
};

// Memory of one call.
struct BoundMemory {
  void* address = nullptr;
  int64_t bytes = 0;
};

// The places of a plan's tensors during one call, in the order of Plan::tensors. An optional tensor
// that the call leaves out stays at null, with 0 bytes.
struct BoundTensors {
  std::array<void*, kMostTensors> address{};
  std::array<int64_t, kMostTensors> bytes{};  // with the T of this call
  std::array<bool, kMostTensors> is_bound{};
  ToldDims told;
  compiler::CallDims dims;  // P and C are set if the call has blocks
  std::array<BoundMemory, compiler::kMemoryBlocks.size()> blocks{};  // as large as the call needs
};

// Checks the caller's tensors against what the call takes, and binds them. The plan's other tensors
// of callers may be given too, and are ignored. If no tensor tells T, P or else C takes its place.
// Errors: kMissingTensor, kTensorMismatch with the tensor's name, what was got and what wanted.
// Allocates only for errors.
Result<void> bind_tensors(const compiler::Plan& plan, const compiler::CallPlan& call,
                          std::span<const TensorRef> tensors, BoundTensors& bound);

// Sets P and C of the call, as tensors tell them or else as T bounds them. Binds the blocks of
// memory that the call uses, whose addresses must be multiples of `alignment`, and the tensors in
// them. Their places are in `places`, which is layout.at() the T of bind_tensors(). Errors:
// kWorkspaceTooSmall, kTensorMismatch (alignment, null, fewer rows than a routing of the tokens may
// need).
Result<void> bind_memory(const compiler::Plan& plan, const compiler::MemoryLayout& layout,
                         const compiler::CallLayout& places, const compiler::CallPlan& call,
                         int64_t alignment, const CallMemory& memory, BoundTensors& bound);

// Returns where a tensor is in the memory of a group in all calls; `group` has the memory of each
// rank. Null: that rank's memory is not reached.
std::byte* address_in_group(const compiler::TensorPlan& tensor, std::span<std::byte* const> group);

// Checks that everything a call writes has memory of its own. The tensors and the blocks that it
// writes must overlap nothing else that it uses. But a tensor may overlap an input whose last
// kernel comes before the tensor's first one, over all calls of the plan. Tensors and blocks that a
// call only reads may share memory. Error kTensorMismatch names both sides of an overlap. Allocates
// only for errors.
Result<void> check_overlaps(const compiler::Plan& plan, const compiler::CallPlan& call,
                            const BoundTensors& bound);

}  // namespace moejit::runtime
