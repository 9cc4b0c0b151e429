// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/moejit_state.h"
#include "runtime/bindings/c/plan_handle.h"
#include "runtime/launch/bound_tensors.h"

#include <array>
#include <cstddef>
#include <span>

namespace moejit::bindings {

// The tensors of a call as the runtime takes them; their shapes stay the caller's. It lives on the
// stack.
struct CallTensors {
  std::array<runtime::TensorRef, runtime::kMostTensors> refs;
  std::size_t count = 0;

  std::span<const runtime::TensorRef> span() const { return std::span(refs).first(count); }
};

// Reads the caller's DLPack tensors for a call, one of the MOEJIT_USED_BY_... bits: checks what
// DLPack says and the runtime does not ask (device, dtype, strides), and leaves the rest to it.
// Tensors of the plan that the call does not touch are left out, unchecked.
// Errors: kInvalidValue (a null pointer), kTensorMismatch. Allocates only for errors.
Result<void> read_call_tensors(const compiler::Plan& plan, const PlanHandle& handle,
                               uint32_t call_bit, std::span<const moejit_tensor> given,
                               CallTensors& tensors);

// A call as the runtime takes it.
struct GivenCall {
  CallTensors tensors;
  runtime::CallMemory memory;
  runtime::Stream stream = nullptr;
};

// Reads the caller's record of a call, and its tensors as above, into a record that is as it was
// constructed. `function` is what errors call the caller's.
Result<void> read_call(const compiler::Plan& plan, const PlanHandle& handle,
                       const moejit_call& call, uint32_t call_bit, const char* function,
                       GivenCall& given);

// Returns what a backward call does with gradients. Error kInvalidValue: no such mode.
Result<compiler::GradientMode> read_mode(moejit_gradient_mode mode, const char* function);
// Returns the pass whose scales an update finds. Error kInvalidValue: no such pass.
Result<compiler::Pass> read_pass(moejit_pass pass, const char* function);

}  // namespace moejit::bindings
