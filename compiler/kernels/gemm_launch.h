// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::compiler {

inline constexpr int32_t kGemmTileRows = 128, kStepBytes = 128, kBarrierBytes = 8,
                         kSwizzleBytes = 1024;

// Returns the launch of a GEMM with so many stages of so many rows and columns, `factors` bytes of
// scales in each, and `staging` bytes for results, as GroupedGemm in templates/moejit_device/gemm
// adds it up; tests/compile compares.
LaunchShape gemm_shape(int32_t stages, int32_t rows, int32_t columns, int32_t factors,
                       int32_t staging);

}  // namespace moejit::compiler
