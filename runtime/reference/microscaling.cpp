// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/microscaling.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

constexpr int kE8m0Bias = 127;

std::int64_t group_count(std::int64_t elements) { return (elements + kMxGroup - 1) / kMxGroup; }

// Elements of a matrix that share a scale: `count` of them, from `first` on, `step` apart.
struct Group {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;

  std::size_t at(std::int64_t i) const { return static_cast<std::size_t>(first + i * step); }
};

std::uint8_t quantize_group(std::span<const std::uint16_t> values, const Group& group,
                            std::vector<std::uint8_t>& q) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < group.count; ++i) {
    const float magnitude = std::fabs(float_from_bf16(values[group.at(i)]));
    if (magnitude > amax) amax = magnitude;  // false for NaN: passed over
  }
  const std::uint8_t exponent = e8m0_from_amax(amax);
  const float factor = std::ldexp(1.0F, kE8m0Bias - exponent);
  for (std::int64_t i = 0; i < group.count; ++i)
    q[group.at(i)] = encode_e4m3(float_from_bf16(values[group.at(i)]) * factor);
  return exponent;
}

Group row_group(const MxMatrix& matrix, std::int64_t row, std::int64_t index) {
  return {.first = row * matrix.cols + index * kMxGroup,
          .count = std::min(kMxGroup, matrix.cols - index * kMxGroup)};
}

Group column_group(const MxMatrix& matrix, std::int64_t index, std::int64_t col) {
  return {.first = index * kMxGroup * matrix.cols + col,
          .count = std::min(kMxGroup, matrix.rows - index * kMxGroup),
          .step = matrix.cols};
}

std::uint16_t value_of(std::uint8_t code, std::uint8_t exponent) {
  return bf16_from_float(decode_e4m3(code) * e8m0_value(exponent));
}

std::int64_t scales_of_row(const MxMatrix& matrix) { return 4 * block_count(matrix.cols); }

}  // namespace

std::uint8_t e8m0_from_amax(float amax) {
  if (std::isinf(amax)) return 254;
  int exponent = 0;
  for (double largest = std::ldexp(double{kE4m3Max}, -kE8m0Bias); amax > largest; largest *= 2.0) {
    if (exponent == 254) break;
    ++exponent;
  }
  return static_cast<std::uint8_t>(exponent);
}

float e8m0_value(std::uint8_t exponent) { return std::ldexp(1.0F, exponent - kE8m0Bias); }

MxMatrix quantize_mx_rows(std::span<const std::uint16_t> values, std::int64_t rows,
                          std::int64_t cols) {
  MxMatrix matrix{.rows = rows, .cols = cols, .q = {}, .scale = {}};
  matrix.q.resize(values.size());
  matrix.scale.resize(static_cast<std::size_t>(rows * scales_of_row(matrix)));
  parallel_for(rows, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < group_count(cols); ++i)
      matrix.scale[static_cast<std::size_t>(row * scales_of_row(matrix) + i)] =
          quantize_group(values, row_group(matrix, row, i), matrix.q);
  });
  return matrix;
}

MxMatrix quantize_mx_columns(std::span<const std::uint16_t> values, std::int64_t rows,
                             std::int64_t cols) {
  MxMatrix matrix{.rows = rows, .cols = cols, .q = {}, .scale = {}};
  matrix.q.resize(values.size());
  matrix.scale.resize(static_cast<std::size_t>(group_count(rows) * cols));
  parallel_for(group_count(rows), [&](std::int64_t i) {
    for (std::int64_t col = 0; col < cols; ++col)
      matrix.scale[static_cast<std::size_t>(i * cols + col)] =
          quantize_group(values, column_group(matrix, i, col), matrix.q);
  });
  return matrix;
}

std::vector<std::uint16_t> mx_row_values(const MxMatrix& matrix) {
  std::vector<std::uint16_t> values(matrix.q.size());
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto row = static_cast<std::int64_t>(at) / matrix.cols;
    const auto group = static_cast<std::int64_t>(at) % matrix.cols / kMxGroup;
    values[at] = value_of(
        matrix.q[at], matrix.scale[static_cast<std::size_t>(row * scales_of_row(matrix) + group)]);
  }
  return values;
}

std::vector<std::uint16_t> mx_column_values(const MxMatrix& matrix) {
  std::vector<std::uint16_t> values(matrix.q.size());
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto row = static_cast<std::int64_t>(at) / matrix.cols;
    const auto col = static_cast<std::int64_t>(at) % matrix.cols;
    values[at] = value_of(
        matrix.q[at], matrix.scale[static_cast<std::size_t>(row / kMxGroup * matrix.cols + col)]);
  }
  return values;
}

std::vector<std::uint16_t> with_zero_pads(std::span<const std::uint16_t> values, std::int64_t cols,
                                          std::span<const std::int32_t> counts,
                                          std::span<const std::int32_t> offs) {
  std::vector<std::uint16_t> all(values.size());
  for (std::size_t e = 0; e < counts.size(); ++e) {
    const std::int64_t first = offs[e] * cols;
    const std::int64_t end = std::min(first + counts[e] * cols, std::ssize(values));
    if (first < end) std::copy(values.begin() + first, values.begin() + end, all.begin() + first);
  }
  return all;
}

namespace {

// Puts scales of one group of rows, `outer` by `inner`, behind the tiles of `first_rows` rows.
// scale_of(i, j) is the scale of outer index i and inner index j.
template <typename ScaleOf>
void swizzle_group(std::vector<std::uint8_t>& output, std::int64_t first_byte, std::int64_t outer,
                   std::int64_t inner, const ScaleOf& scale_of) {
  const std::int64_t tiles = (inner + 3) / 4;
  std::fill_n(output.begin() + first_byte, block_count(outer) * tiles * 512, std::uint8_t{0});
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::int64_t j = 0; j < inner; ++j)
      output[static_cast<std::size_t>(first_byte + (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 +
                                      i % 128 / 32 * 4 + j % 4)] = scale_of(i, j);
}

}  // namespace

std::vector<std::uint8_t> swizzle_row_scales(const MxMatrix& matrix, const TransposeGroups& groups,
                                             std::int64_t output_rows, std::uint8_t untouched) {
  const std::int64_t row_scales = scales_of_row(matrix);
  std::vector<std::uint8_t> output(static_cast<std::size_t>(output_rows * row_scales), untouched);
  for (std::size_t e = 0; e < groups.counts.size(); ++e)
    swizzle_group(
        output, groups.output_offs[e] * row_scales,
        groups.output_offs[e + 1] - groups.output_offs[e], row_scales,
        [&](std::int64_t i, std::int64_t j) {
          if (i >= groups.counts[e]) return std::uint8_t{0};
          return matrix.scale[static_cast<std::size_t>((groups.offs[e] + i) * row_scales + j)];
        });
  return output;
}

std::vector<std::uint8_t> swizzle_column_scales(const MxMatrix& matrix,
                                                const TransposeGroups& groups,
                                                std::int64_t output_rows, std::uint8_t untouched) {
  const std::int64_t row_bytes = 4 * block_count(matrix.cols);
  std::vector<std::uint8_t> output(static_cast<std::size_t>(output_rows * row_bytes), untouched);
  for (std::size_t e = 0; e < groups.counts.size(); ++e)
    swizzle_group(
        output, groups.output_offs[e] * row_bytes, kBlock * block_count(matrix.cols),
        (groups.output_offs[e + 1] - groups.output_offs[e]) / kMxGroup,
        [&](std::int64_t i, std::int64_t j) {
          if (i >= matrix.cols || j * kMxGroup >= groups.counts[e]) return std::uint8_t{0};
          return matrix
              .scale[static_cast<std::size_t>((groups.offs[e] / kMxGroup + j) * matrix.cols + i)];
        });
  return output;
}

}  // namespace moejit::reference
