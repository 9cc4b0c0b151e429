// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/plan_handle.h"
#include "runtime/launch/bound_tensors.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace moejit::bindings {

// The tensors of a call as the runtime takes them; their shapes stay the caller's. The object lives
// on the stack, and only the used part of it is touched.
class CallTensors {
 public:
  CallTensors() {}  // NOLINT(modernize-use-equals-default): that would clear the storage
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  // Adds a tensor, unless there are as many as fit; returns whether it did.
  bool add(const runtime::TensorRef& tensor) {
    if (count_ == kMost) return false;
    std::construct_at(refs() + count_++, tensor);
    return true;
  }
  std::span<const runtime::TensorRef> span() const {
    return {reinterpret_cast<const runtime::TensorRef*>(storage_.data()), count_};
  }
  static constexpr std::size_t kMost = runtime::kMostTensors;

 private:
  static_assert(std::is_trivially_destructible_v<runtime::TensorRef>);
  runtime::TensorRef* refs() { return reinterpret_cast<runtime::TensorRef*>(storage_.data()); }

  alignas(runtime::TensorRef) std::array<std::byte, kMost * sizeof(runtime::TensorRef)> storage_;
  std::size_t count_ = 0;
};

// A call as the runtime takes it.
struct GivenCall {
  CallTensors tensors;
  runtime::CallMemory memory;
  runtime::Stream stream = nullptr;
};

// Reads the caller's record of a call of the plan into `given`, which must be newly constructed.
// Checks what DLPack says of the tensors and the runtime does not check: device, dtype, strides.
// The runtime checks the rest. Tensors of the plan that the call does not take are left out,
// unchecked. Errors: kInvalidValue (a null pointer), kTensorMismatch. Allocates only for errors.
Result<void> read_call(const moejit_plan& plan, const compiler::CallPlan& wanted,
                       const moejit_call& call, GivenCall& given);

}  // namespace moejit::bindings
