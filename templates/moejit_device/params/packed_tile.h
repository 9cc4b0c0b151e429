// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Bytes of a packed tile of MXFP4, 128 rows by 128 of the contraction: codes, then a byte for each
// 32 of a row (gemm/mxfp4_mainloop.cuh).
inline constexpr int32_t kPackedCodeBytes = 128 * 128 / 2;
inline constexpr int32_t kPackedTileBytes = kPackedCodeBytes + 128 * 4;

}  // namespace moejit::device
