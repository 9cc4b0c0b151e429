// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/plans.h"
#include "xla/ffi/api/ffi.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::jax {

// Takes the next word off a text whose words are separated by single spaces.
std::string_view take_word(std::string_view& text);

// A call of a plan while XLA's buffers are gathered. They have to outlive it. Functions throw
// graph::Failure.
class Call {
 public:
  // A call on a stream of the plan's device; NULL in the simulator.
  Call(const graph::ReadyPlan& ready, const graph::CallRow& row, void* stream);

  // Adds a buffer by the name of a tensor of the plan, or of a block: "workspace", "saved",
  // "quantized" or "quantized_colwise". 64-bit integers may be their halves, U32 [..., 2]. Throws
  // if the call takes nothing of that name.
  void add(std::string_view name, const xla::ffi::AnyBuffer& buffer);
  // Adds a result, whose memory XLA leaves as it was. What the call reads of it is set to 0 first,
  // unless `is_given`: it then has the memory of an argument.
  void add_result(std::string_view name, const xla::ffi::AnyBuffer& buffer, bool is_given);
  void run();

 private:
  const graph::CallArgument* find(std::string_view name) const;
  void add_block(const graph::CallArgument& argument, const xla::ffi::AnyBuffer& buffer);
  void add_quantized(const graph::CallArgument& argument, const xla::ffi::AnyBuffer& buffer);
  void add_tensor(const char* name, const DLTensor& tensor);
  void clear(const xla::ffi::AnyBuffer& buffer, int64_t first, int64_t bytes);

  const graph::ReadyPlan& ready_;
  const graph::CallRow& row_;
  moejit_call call_{};
  std::vector<DLTensor> tensors_;
  std::vector<const char*> names_;
};

}  // namespace moejit::jax
