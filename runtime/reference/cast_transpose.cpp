// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/cast_transpose.h"

#include <cmath>

namespace moejit::reference {

CastTransposed cast_transpose(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                              float scale, Fp8Format format) {
  CastTransposed result{.bytes = std::vector<std::uint8_t>(values.size()),
                        .colwise = std::vector<std::uint8_t>(values.size()),
                        .scale_inv = 1.0F / scale};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const auto at = static_cast<std::size_t>(row * cols + col);
      const float product = scale * values[at];
      const std::uint8_t byte = encode_fp8(product, format);
      result.bytes[at] = byte;
      result.colwise[static_cast<std::size_t>(col * rows + row)] = byte;
      const float magnitude = std::fabs(values[at]);
      if (magnitude > result.amax) result.amax = magnitude;
    }
  }
  return result;
}

}  // namespace moejit::reference
