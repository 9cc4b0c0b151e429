// SPDX-License-Identifier: Apache-2.0
#pragma once

// For operands without scales, or with such as do not change along the contraction, which the
// epilogue applies. Main loops that promote with scales ask for more than this has.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

struct NoScales {
  template <typename Params>
  MOEJIT_DEVICE explicit NoScales(const Params&) {}

  MOEJIT_DEVICE static void prime(const GemmTile&) {}
  MOEJIT_DEVICE static void start(const GemmTile&, const WarpgroupPart&) {}
};

}  // namespace moejit::device
