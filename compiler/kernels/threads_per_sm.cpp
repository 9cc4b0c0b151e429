// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"

#include "compiler/support/integer.h"

namespace moejit::compiler {

int32_t usual_threads_per_sm(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kGatedGradientRows: return 768;
    case LoadStage::kCombinedRows: return spec.top_k <= 8 ? 1024 : 768;
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows:
    case LoadStage::kMatrixRows:
    case LoadStage::kGatedRows:
    case LoadStage::kUpRows:
    case LoadStage::kUpGradientRows: break;
  }
  return 1024;
}

int32_t usual_threads_per_sm(const TransposeSpec& spec) { return spec.counts_flushed ? 256 : 512; }

int32_t usual_threads_per_sm(const ColumnCastSpec&) { return 512; }

int32_t usual_threads_per_sm(const GatedGradientSpec&) { return 512; }

int32_t usual_threads_per_sm(const GroupColumnsSpec&) { return 512; }

LaunchShape gemm_shape(int32_t stages, int32_t rows, int32_t columns, int32_t factors,
                       int32_t staging) {
  constexpr int32_t kQueuedTiles = 4, kTileBytes = 48;
  const int32_t ring = stages * ((rows + columns) * kStepBytes + factors + 2 * kBarrierBytes);
  const int32_t queue = kQueuedTiles * (kTileBytes + 2 * kBarrierBytes);
  // The part that ends first is aligned for the part behind it: staging, where tiles are so wide
  // that it is first.
  const bool has_staging_first = columns > kMostColumnsBeforeStaging;
  const int32_t buffers = has_staging_first ? align_up(staging, kSwizzleBytes) + ring
                                            : align_up(ring, kSwizzleBytes) + staging;
  return {.threads = 3 * 128,  // one producer warpgroup and two that multiply
          .ctas_per_sm = 1,
          .shared_bytes = buffers + queue};
}

}  // namespace moejit::compiler
