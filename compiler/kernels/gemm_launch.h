// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::compiler {

inline constexpr int32_t kGemmTileRows = 128, kStepBytes = 128, kBarrierBytes = 8,
                         kSwizzleBytes = 1024;
// Stages of tiles with more columns lie behind the staging of results, others before it.
inline constexpr int32_t kMostColumnsBeforeStaging = 192;

// Returns the launch of a GEMM with `stages` stages of `rows` rows of A and `columns` columns. Each
// stage has `factors` bytes of scales, and results take `staging` bytes. It must be the sum in
// GroupedGemm in templates/moejit_device/gemm; tests/compile compares the two.
LaunchShape gemm_shape(int32_t stages, int32_t rows, int32_t columns, int32_t factors,
                       int32_t staging);

}  // namespace moejit::compiler
