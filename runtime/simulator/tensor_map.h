// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/plain_tensor_map.cuh"

#include <array>
#include <cstdint>

namespace moejit::runtime {

// A tensor map as the simulator reads it.
struct SimTensorMap : device::PlainTensorMap {
  int64_t row_bytes() const { return int64_t{box[0]} * element_bytes; }
  int32_t rows() const { return box[1] * box[2] * box[3]; }
  int64_t bytes() const { return rows() * row_bytes(); }
};

// The part of a box's row that lies in the tensor; rows count as in shared memory.
struct BoxRow {
  uintptr_t source = 0;  // global address of the first byte inside of the tensor
  int64_t begin = 0;     // bytes [begin, end) of the row lie in the tensor, the others outside
  int64_t end = 0;
};
BoxRow row_of_box(const SimTensorMap& map, const std::array<int32_t, 4>& at, int32_t row);

}  // namespace moejit::runtime
