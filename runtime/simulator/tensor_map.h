// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "moejit_device/core/tensor_map.cuh"

#include <array>
#include <cstdint>

namespace moejit::runtime {

// The simulator's content of the bytes of a TensorMap.
struct SimTensorMap {
  static constexpr uint64_t kMagic = 0x74'65'6e'73'6f'72'6d'70u;  // "tensormp"

  uint64_t magic = kMagic;
  uintptr_t address = 0;
  std::array<int64_t, 4> dims{1, 1, 1, 1};  // elements
  std::array<int64_t, 3> strides{0, 0, 0};  // bytes, of dimensions 1 to 3
  std::array<int32_t, 4> box{1, 1, 1, 1};   // elements
  int32_t element_bytes = 1;
  int32_t rank = 2;
  int32_t is_swizzled = 0;

  int64_t row_bytes() const { return int64_t{box[0]} * element_bytes; }
  int32_t rows() const { return box[1] * box[2] * box[3]; }
  int64_t bytes() const { return rows() * row_bytes(); }
};
static_assert(sizeof(SimTensorMap) <= sizeof(device::TensorMap));

// Encodes a tensor and a box of it. Error kInternal: the hardware does not take the box.
Result<device::TensorMap> encode_sim_tensor_map(const compiler::TensorBox& box,
                                                const void* address);

// The part of a box's row that lies in the tensor; rows count as in shared memory.
struct BoxRow {
  uintptr_t source = 0;  // global address of the first byte inside of the tensor
  int64_t begin = 0;     // bytes [begin, end) of the row lie in the tensor, the others outside
  int64_t end = 0;
};
BoxRow row_of_box(const SimTensorMap& map, const std::array<int32_t, 4>& at, int32_t row);

}  // namespace moejit::runtime
