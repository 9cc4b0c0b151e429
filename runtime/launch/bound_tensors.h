// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/prepared_layer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moejit::runtime {

// More tensors than any plan has: what a call needs fits on the stack.
inline constexpr std::size_t kMostTensors = 64;

// Where the tensors of a plan are during one call, in the order of Plan::tensors.
struct BoundTensors {
  std::array<void*, kMostTensors> address{};
  std::array<int64_t, kMostTensors> bytes{};  // with the T of this call
  std::array<bool, kMostTensors> is_bound{};
  int64_t tokens = 0;  // T
};

// Checks the caller's tensors against the plan and binds them. Wanted are all tensors whose role
// is one of `roles`; the plan's other caller-owned tensors may be among them and are ignored.
// Errors: kMissingTensor, kTensorMismatch with the tensor's name, what was got and what wanted.
// Allocates only for errors.
Result<void> bind_tensors(const compiler::Plan& plan, std::span<const compiler::TensorRole> roles,
                          std::span<const TensorRef> tensors, BoundTensors& bound);

// Binds the tensors that live in the workspace. Errors: kWorkspaceTooSmall, kTensorMismatch
// (alignment).
Result<void> bind_workspace(const compiler::Plan& plan, void* workspace, int64_t workspace_bytes,
                            BoundTensors& bound);

}  // namespace moejit::runtime
