// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

namespace {

// The rows of a block and the first of the 128 columns that they become.
struct RowBlock {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_output = 0;
};

std::vector<RowBlock> blocks_of(const TransposeGroups& groups) {
  std::vector<RowBlock> blocks;
  for (std::size_t e = 0; e < groups.counts.size(); ++e)
    for (std::int64_t done = 0; done < groups.counts[e]; done += kBlock)
      blocks.push_back({groups.offs[e] + done,
                        std::min<std::int64_t>(kBlock, groups.counts[e] - done),
                        groups.output_offs[e] + done});
  return blocks;
}

}  // namespace

ColumnCast quantize_columns(std::span<const std::uint16_t> values, std::int64_t cols,
                            const TransposeGroups& groups, std::int64_t output_cols, float eps,
                            std::uint8_t untouched) {
  float untouched_scale = 0.0F;
  std::memset(&untouched_scale, untouched, sizeof(float));
  ColumnCast cast{
      .bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(cols * output_cols), untouched),
      .scale_inv = std::vector<float>(static_cast<std::size_t>(output_cols / kBlock * cols),
                                      untouched_scale)};
  const std::vector<RowBlock> blocks = blocks_of(groups);
  parallel_for(cols, [&](std::int64_t col) {
    for (const RowBlock& block : blocks) {
      const auto value = [&](std::int64_t i) {
        return float_from_bf16(
            values[static_cast<std::size_t>((block.first_row + i) * cols + col)]);
      };
      float amax = 0.0F;
      for (std::int64_t i = 0; i < block.rows; ++i)
        if (std::fabs(value(i)) > amax) amax = std::fabs(value(i));  // false for NaN: passed over
      const BlockScale scale = scale_from_amax(amax, {.eps = eps});
      cast.scale_inv[static_cast<std::size_t>(block.first_output / kBlock * cols + col)] =
          scale.scale_inv;
      for (std::int64_t i = 0; i < kBlock; ++i)
        cast.bytes[static_cast<std::size_t>(col * output_cols + block.first_output + i)] =
            i < block.rows ? encode_e4m3(value(i) * scale.scale) : std::uint8_t{0};
    }
  });
  return cast;
}

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
