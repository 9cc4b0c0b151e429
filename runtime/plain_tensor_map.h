// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/launch.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "moejit_device/core/plain_tensor_map.cuh"

#include <cstring>

namespace moejit::runtime {

// Encodes a tensor at `address` and a box of it for threads that copy, and for the simulator. Error
// kInternal: a box that tensor copies do not take.
inline Result<device::TensorMap> encode_plain_tensor_map(const compiler::TensorBox& box,
                                                         const void* address) {
  MOEJIT_TRY(check_tensor_box(box, address));
  device::PlainTensorMap map{.address = reinterpret_cast<uintptr_t>(address),
                             .element_bytes = static_cast<int32_t>(compiler::size_bytes(box.dtype)),
                             .rank = box.rank,
                             .is_swizzled = box.is_swizzled ? 1 : 0};
  for (std::size_t i = 0; i < static_cast<std::size_t>(box.rank); ++i) {
    map.dims[i] = box.dims[i];
    map.box[i] = box.box[i];
    if (i > 0) map.strides[i - 1] = box.strides_bytes[i - 1];
  }
  device::TensorMap encoded{};
  std::memcpy(&encoded, &map, sizeof(map));
  return encoded;
}

}  // namespace moejit::runtime
