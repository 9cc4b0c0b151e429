// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// A tensor of delayed scaling: bytes [rows, cols], colwise [cols, rows].
struct CastTransposed {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> colwise;
  float amax = 0.0F;       // the largest magnitude apart from NaN; 0 if there is none
  float scale_inv = 0.0F;  // 1 / scale, rounded to nearest even
};

// Casts `values` [rows, cols]. Each product with `scale` is rounded to fp32, then to the format.
CastTransposed cast_transpose(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                              float scale, Fp8Format format);

}  // namespace moejit::reference
