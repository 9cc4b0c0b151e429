// SPDX-License-Identifier: Apache-2.0
#pragma once

// The grouped GEMM skeleton: rows of A and D belong to groups whose sizes only the device knows,
// and each group has its own B. A persistent CTA takes tile after tile.
//
//   Scheduler  which tile comes next:    Scheduler(params), bool next(GemmTile&)
//   Mainloop   the tile's accumulators:  run(params, tile, Accumulators<Shape>&), kSharedBytes,
//                                        kCtasPerSm
//   Epilogue   what becomes of them:     run(params, tile, Accumulators<Shape>)
//
// Each can be replaced alone as long as it speaks the records of tile.cuh. Complete emitted
// examples are tests/golden/sources/*_gemm_*.cu.

#include "moejit_device/gemm/epilogue_store.cuh"
#include "moejit_device/gemm/mainloop_mma_sync_fp8_blockscaled.cuh"
#include "moejit_device/gemm/scheduler.cuh"
#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

namespace moejit::device {

template <typename Shape, typename Scheduler, typename Mainloop, typename Epilogue>
struct GroupedGemm {
  static constexpr int32_t kThreads = Shape::kThreads;
  static constexpr int32_t kCtasPerSm = Mainloop::kCtasPerSm;
  static constexpr int32_t kSharedBytes = Mainloop::kSharedBytes;

  MOEJIT_DEVICE static void run(const GroupedGemmParams& params) {
    Scheduler scheduler(params);
    GemmTile tile;
    while (scheduler.next(tile)) {
      Accumulators<Shape> sum = {};
      if (tile.rows > 0) Mainloop::run(params, tile, sum);
      Epilogue::run(params, tile, sum);
    }
  }
};

}  // namespace moejit::device
