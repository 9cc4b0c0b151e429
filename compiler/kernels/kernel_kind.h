// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/emitter/emitter.h"
#include "compiler/launch.h"
#include "compiler/plan.h"
#include "compiler/work.h"
#include "moejit_device/params/grouped_gemm_params.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::compiler {

// These macros list the fields of a kind's parameter record; the fields' names are the roles.

#define MOEJIT_POINTER(record, field, access) \
  RecordTensor { #field, offsetof(record, field), access }

// Lists the pointers of CallTokens, which kernels of backward calls get.
#define MOEJIT_CALL_POINTERS(record)                                                       \
  RecordTensor{"saved_tokens", offsetof(record, call.saved_tokens), kRead}, RecordTensor { \
    "tokens_status", offsetof(record, call.tokens_status), kReadWrite                      \
  }

#define MOEJIT_NUMBER(record, field) \
  RecordNumber { #field, offsetof(record, field) }

// Returns whether a record lists all fields of its struct: pointers and numbers of 8 bytes, and
// tensor maps. Tensor maps set the struct's alignment if there are any.
constexpr bool is_complete(const ParamRecord& record) {
  const std::size_t maps = record.maps.size() * sizeof(device::TensorMap);
  const std::size_t bytes = maps + 8 * (record.pointers.size() + record.numbers.size());
  const std::size_t alignment = maps > 0 ? alignof(device::TensorMap) : 8;
  return record.bytes == (bytes + alignment - 1) / alignment * alignment;
}

// What planner, runtime and emitter ask of a kind of kernel. The module of the kind, named after
// its device skeleton, defines all functions for its spec; a missing function is a link error.
template <typename Spec>
struct KernelKind {
  // Returns threads, shared memory and CTAs per SM, and whether CTAs walk.
  static LaunchShape shape(const Spec& spec);
  // Returns how many CTAs have work in a call over T tokens, whatever their routing.
  static int64_t busy(const Spec& spec, const CallBounds& bounds, int64_t tokens);
  // Returns the numbers of the parameter record.
  static std::vector<KernelNumber> numbers(const Spec& spec, const CallBounds& bounds);
  // Returns the least traffic and arithmetic of a call.
  static Work work(const Spec& spec, const CallBounds& bounds, const CallRows& rows);
  // Returns the fields of the parameter record, with the kernel's access to each.
  static const ParamRecord& record(const Spec& spec);
  // Returns the parts of the emitted text that are specific to this kind.
  static KernelText text(const Spec& spec);
};

// Returns rows * elements, none negative, or INT64_MAX where that is more.
constexpr int64_t products_of(int64_t rows, int64_t elements) {
  return elements > 0 && rows > INT64_MAX / elements ? INT64_MAX : rows * elements;
}

// The number that kernels get if they check the T of a backward call.
inline const KernelNumber kCallTokens{.role = "call.tokens", .dim = CallDim::kTokens};

}  // namespace moejit::compiler
