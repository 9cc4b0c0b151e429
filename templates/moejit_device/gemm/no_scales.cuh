// SPDX-License-Identifier: Apache-2.0
#pragma once

// For operands without scales, or with such as do not change along the contraction, which the
// epilogue applies. A main loop that promotes adds partial sums as they are.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device {

struct NoScales {
  static constexpr int32_t kSuppliers = 0;
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = 0;
  static constexpr bool kEndsGroups = false;  // whether end_group() is called (GroupTail)

  struct Factors {};

  MOEJIT_DEVICE static void start(const GemmTile&, const WarpgroupPart&) {}

  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE static Factors factors(int32_t) {
    return {};
  }

  template <typename Stages>
  MOEJIT_DEVICE static Factors half_factors(int32_t) {
    return {};
  }

  template <int32_t kHalf>
  MOEJIT_DEVICE static void promote_half(const ptx::WgmmaSum<128>& partial, Factors factors,
                                         float* sums) {
    promote<128>(partial, factors, sums);
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial, Factors, float* sums) {
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = ptx::add(sums[i], partial(i));
  }
};

}  // namespace moejit::device
