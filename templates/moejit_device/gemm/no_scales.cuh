// SPDX-License-Identifier: Apache-2.0
#pragma once

// For operands without scales, or with such as do not change along the contraction, which the
// epilogue applies. Main loops that promote with scales ask for more than this has.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

struct NoScales {
  static constexpr int32_t kSuppliers = 0;
  static constexpr int32_t kFactorBytes = 0;

  MOEJIT_DEVICE static void start(const GemmTile&, const WarpgroupPart&) {}
};

}  // namespace moejit::device
