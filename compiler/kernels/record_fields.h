// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/param_record.h"
#include "moejit_device/params/grouped_gemm_params.h"

#include <cstddef>

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

}  // namespace moejit::compiler
