// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/row_scale.h"

#include "runtime/reference/block_scale.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"

#include <cmath>

namespace moejit::reference {
namespace {

// Returns the largest magnitude of `count` values, `stride` apart; NaN is passed over.
float amax_of(std::span<const std::uint16_t> values, std::int64_t first, std::int64_t count,
              std::int64_t stride) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = float_from_bf16(values[static_cast<std::size_t>(first + i * stride)]);
    if (std::fabs(value) > amax) amax = std::fabs(value);
  }
  return amax;
}

}  // namespace

QuantizedRows quantize_rows(std::span<const std::uint16_t> values, std::int64_t rows,
                            std::int64_t cols, float eps) {
  QuantizedRows result{rows, cols, std::vector<std::uint8_t>(values.size()),
                       std::vector<float>(static_cast<std::size_t>(rows))};
  parallel_for(rows, [&](std::int64_t row) {
    const BlockScale scale = scale_from_amax(amax_of(values, row * cols, cols, 1), {.eps = eps});
    result.scale_inv[static_cast<std::size_t>(row)] = scale.scale_inv;
    for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i)
      result.q[static_cast<std::size_t>(i)] =
          encode_e4m3(float_from_bf16(values[static_cast<std::size_t>(i)]) * scale.scale);
  });
  return result;
}

std::vector<float> group_column_scales(std::span<const std::uint16_t> values, std::int64_t cols,
                                       const TransposeGroups& groups, float eps) {
  std::vector<float> scale_inv;
  for (std::size_t e = 0; e < groups.counts.size(); ++e)
    for (std::int64_t col = 0; col < cols; ++col) {
      const float amax = amax_of(values, groups.offs[e] * cols + col, groups.counts[e], cols);
      scale_inv.push_back(scale_from_amax(amax, {.eps = eps}).scale_inv);
    }
  return scale_inv;
}

std::vector<std::uint8_t> cast_columns(std::span<const std::uint16_t> values, std::int64_t cols,
                                       const TransposeGroups& groups,
                                       std::span<const float> scale_inv, std::int64_t output_cols,
                                       std::uint8_t untouched) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(cols * output_cols), untouched);
  parallel_for(cols, [&](std::int64_t col) {
    for (std::size_t e = 0; e < groups.counts.size(); ++e) {
      const std::int64_t count = groups.counts[e], filled = block_count(count) * kBlock;
      const float scale =
          1.0F / scale_inv[e * static_cast<std::size_t>(cols) + static_cast<std::size_t>(col)];
      for (std::int64_t i = 0; i < filled; ++i) {
        const auto at = static_cast<std::size_t>((groups.offs[e] + i) * cols + col);
        bytes[static_cast<std::size_t>(col * output_cols + groups.output_offs[e] + i)] =
            i < count ? encode_e4m3(float_from_bf16(values[at]) * scale) : std::uint8_t{0};
      }
    }
  });
  return bytes;
}

}  // namespace moejit::reference
