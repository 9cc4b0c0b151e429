// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"

namespace moejit::device {

// What the bytes of a TensorMap hold where no hardware reads them: in the simulator, and for GPUs
// whose threads copy tensors.
struct PlainTensorMap {
  static constexpr uint64_t kMagic = 0x74'65'6e'73'6f'72'6d'70u;  // "tensormp"

  uint64_t magic = kMagic;
  uint64_t address = 0;         // in global memory
  int64_t dims[4]{1, 1, 1, 1};  // elements
  int64_t strides[3]{0, 0, 0};  // bytes, of dimensions 1 to 3
  int32_t box[4]{1, 1, 1, 1};   // elements
  int32_t element_bytes = 1;
  int32_t rank = 2;
  int32_t is_swizzled = 0;  // whether rows of 128 bytes have the 128-byte swizzle
};
static_assert(sizeof(PlainTensorMap) <= sizeof(TensorMap), "the map has room for it");

}  // namespace moejit::device
