// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/tensor_map.h"

#include <algorithm>

namespace moejit::runtime {

BoxRow row_of_box(const SimTensorMap& map, const std::array<int32_t, 4>& at, int32_t row) {
  const int64_t y = int64_t{at[1]} + row % map.box[1];
  const int64_t z = int64_t{at[2]} + row / map.box[1] % map.box[2];
  const int64_t w = int64_t{at[3]} + row / map.box[1] / map.box[2];
  if (y < 0 || y >= map.dims[1] || z < 0 || z >= map.dims[2] || w < 0 || w >= map.dims[3])
    return {};
  const int64_t first = std::max<int64_t>(at[0], 0);
  const int64_t last = std::min<int64_t>(int64_t{at[0]} + map.box[0], map.dims[0]);
  if (first >= last) return {};
  const int64_t offset =
      first * map.element_bytes + y * map.strides[0] + z * map.strides[1] + w * map.strides[2];
  return {.source = map.address + static_cast<uintptr_t>(offset),
          .begin = (first - at[0]) * map.element_bytes,
          .end = (last - at[0]) * map.element_bytes};
}

}  // namespace moejit::runtime
