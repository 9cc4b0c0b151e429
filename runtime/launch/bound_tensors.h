// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/plan.h"
#include "runtime/call.h"
#include "runtime/check_tensor.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moejit::runtime {

using compiler::kMostTensors;

// Some of a plan's tensors, in the order of Plan::tensors.
using TensorSet = std::bitset<kMostTensors>;

// Returns the caller's tensors that a call of this part touches.
TensorSet tensors_of_call(const compiler::Plan& plan, const CallPart& part);

// Returns the tensors of tensors_of_call() that its kernels write.
TensorSet tensors_written(const compiler::Plan& plan, const CallPart& part);

// Returns the caller's other tensors that a call of this part takes for their shape alone.
TensorSet tensors_of_shape(const compiler::Plan& plan, const CallPart& part);

// Returns the caller's tensors of a plan, as indices into Plan::tensors, in its order.
std::vector<std::size_t> slots_of_callers(const compiler::Plan& plan);

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

// Checks the caller's tensors against the plan, whose slots_of_callers() are `callers`, and binds
// them. All of `wanted` that calls of this phase may not leave out must be given. All of `shapes`
// must be given too, with any addresses. The plan's other caller-owned tensors may be given, and
// are ignored. If no tensor tells T, P or else C takes its place. Errors: kMissingTensor,
// kTensorMismatch with the tensor's name, what was got and what wanted. Allocates only for errors.
Result<void> bind_tensors(const compiler::Plan& plan, std::span<const std::size_t> callers,
                          compiler::Phase phase, const TensorSet& wanted, const TensorSet& shapes,
                          std::span<const TensorRef> tensors, BoundTensors& bound);

// Sets P and C of the call, as tensors tell them or else as T bounds them. Binds the blocks of
// memory, whose addresses must be multiples of `alignment`, and the tensors in them. Their places
// are in `call`, which is layout.at() the T of bind_tensors(). Only backward calls have a deferred
// block. Errors: kWorkspaceTooSmall, kTensorMismatch (alignment, null, fewer rows than a routing of
// the tokens may need).
Result<void> bind_memory(const compiler::Plan& plan, const compiler::MemoryLayout& layout,
                         const compiler::CallLayout& call, const CallPart& part, int64_t alignment,
                         const CallMemory& memory, BoundTensors& bound);

// Checks that everything a call writes has memory of its own. The tensors `written`, the workspace,
// and the saved block of a forward call must overlap nothing else that the call uses. The same
// holds for the deferred block if the data half runs. Tensors and blocks that it only reads may
// share memory. Error kTensorMismatch names both sides of an overlap. Allocates only for errors.
Result<void> check_overlaps(const compiler::Plan& plan, std::span<const std::size_t> callers,
                            const CallPart& part, const TensorSet& written,
                            const BoundTensors& bound);

}  // namespace moejit::runtime
