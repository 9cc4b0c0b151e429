// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/prepared_layer.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moejit::runtime {

// More tensors than any plan has: what a call needs fits on the stack.
inline constexpr std::size_t kMostTensors = 96;

// Some of a plan's tensors, in the order of Plan::tensors.
using TensorSet = std::bitset<kMostTensors>;

// The caller's tensors that a call of this phase touches.
TensorSet tensors_of_call(const compiler::Plan& plan, compiler::Phase phase);

// Those of them that its kernels write.
TensorSet tensors_written(const compiler::Plan& plan, compiler::Phase phase);

// Where the tensors of a plan are during one call, in the order of Plan::tensors. An optional one
// that the call leaves out stays at null, with 0 bytes.
struct BoundTensors {
  std::array<void*, kMostTensors> address{};
  std::array<int64_t, kMostTensors> bytes{};  // with the T of this call
  std::array<bool, kMostTensors> is_bound{};
  int64_t tokens = 0;  // T
};

// Checks the caller's tensors against the plan and binds them. All of `wanted` that are not
// optional must be among them; the plan's other caller-owned tensors may be, and are ignored.
// Errors: kMissingTensor, kTensorMismatch with the tensor's name, what was got and what wanted.
// Allocates only for errors.
Result<void> bind_tensors(const compiler::Plan& plan, const TensorSet& wanted,
                          std::span<const TensorRef> tensors, BoundTensors& bound);

// Binds the tensors that live in the workspace and in what is saved. Errors: kWorkspaceTooSmall,
// kTensorMismatch (alignment, null).
Result<void> bind_memory(const compiler::Plan& plan, const CallMemory& memory, BoundTensors& bound);

// Whether what a call writes has memory of its own: the tensors `written`, the workspace and, in a
// forward call, what is saved overlap nothing that the call uses. What it only reads may be the
// same memory. Error kTensorMismatch names both. Allocates only for errors.
Result<void> check_overlaps(const compiler::Plan& plan, compiler::Phase phase,
                            const TensorSet& written, const CallMemory& memory,
                            const BoundTensors& bound);

}  // namespace moejit::runtime
