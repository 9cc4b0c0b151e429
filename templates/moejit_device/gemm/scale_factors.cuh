// SPDX-License-Identifier: Apache-2.0
#pragma once

// The factors that scales hand to the main loop, and promotion with them.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// What partial sums are multiplied with: by row half (rows r and r + 8 of a thread) and by kUnit
// columns.
template <int32_t kW>
struct ScaleFactors {
  static constexpr int32_t kUnit = kW % 64 == 0 ? 64 : 32;
  float value[2][kW / kUnit];
};

// sums = fma(partial, factor, sums), for sums [kW / 2].
template <int32_t kW>
MOEJIT_DEVICE void promote_scaled(const ptx::WgmmaSum<kW>& partial, const ScaleFactors<kW>& factors,
                                  float* sums) {
#pragma unroll
  for (int32_t j = 0; j < kW / 8; ++j) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      sums[4 * j + i] = ptx::fused_multiply_add(
          partial(4 * j + i), factors.value[i / 2][8 * j / ScaleFactors<kW>::kUnit],
          sums[4 * j + i]);
    }
  }
}

}  // namespace moejit::device
