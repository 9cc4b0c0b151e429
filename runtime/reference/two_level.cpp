// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/two_level.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moejit::reference {
namespace {

constexpr std::array<float, 8> kMagnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
constexpr float kE2m1Max = 6.0F, kSixth = 1.0F / 6.0F;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// A block of a matrix.
struct Block {
  std::int64_t row = 0, col = 0;
  std::int64_t rows = 1, cols = 1;
};

Block block_of(const TwoLevelMatrix& matrix, std::int64_t row, std::int64_t col,
               TwoLevelBlocks blocks) {
  const std::int64_t height = blocks == TwoLevelBlocks::kRows ? 1 : kTwoLevelBlock;
  const std::int64_t width = blocks == TwoLevelBlocks::kColumns ? 1 : kTwoLevelBlock;
  return {.row = row,
          .col = col,
          .rows = std::min(height, matrix.rows - row),
          .cols = std::min(width, matrix.cols - col)};
}

void quantize_block(std::span<const std::uint16_t> values, const Block& block, float expert_scale,
                    TwoLevelMatrix& matrix) {
  const auto for_each = [&](const auto& visit) {
    for (std::int64_t row = block.row; row < block.row + block.rows; ++row)
      for (std::int64_t col = block.col; col < block.col + block.cols; ++col)
        visit(at(row * matrix.cols + col));
  };
  float amax = 0.0F;
  for_each([&](std::size_t i) {
    const float magnitude = std::fabs(float_from_bf16(values[i]));
    if (magnitude > amax) amax = magnitude;  // false for NaN: passed over
  });
  const float relative_scale = expert_scale * kSixth;
  const std::uint8_t byte = encode_e4m3(amax * relative_scale);
  const float expert_inverse = 1.0F / expert_scale;
  const float step = decode_e4m3(byte) * expert_inverse;
  const float factor = std::min(1.0F / step, std::numeric_limits<float>::max());
  for_each([&](std::size_t i) {
    const float scaled = float_from_bf16(values[i]) * factor;
    matrix.codes[i] = encode_e2m1(scaled);
    matrix.scales[i] = byte;
  });
}

}  // namespace

std::uint8_t encode_e2m1(float value) {
  if (std::isnan(value)) return 7;
  const double magnitude = std::min(std::fabs(value), kE2m1Max);
  std::size_t best = 0;
  for (std::size_t code = 1; code < kMagnitudes.size(); ++code) {
    const double distance = std::fabs(magnitude - double{kMagnitudes[code]});
    const double least = std::fabs(magnitude - double{kMagnitudes[best]});
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 8U : 0U));
}

float decode_e2m1(std::uint8_t code) {
  return std::copysign(kMagnitudes[code & 7U], (code & 8U) != 0 ? -1.0F : 1.0F);
}

ExpertScale two_level_expert_scale(float amax) {
  if (!(amax > 0.0F) || std::isinf(amax)) return {};
  const float scale = std::min(kE2m1Max * kE4m3Max / amax, std::numeric_limits<float>::max());
  return {.scale = scale, .scale_inv = 1.0F / scale};
}

TwoLevelMatrix quantize_two_levels(std::span<const std::uint16_t> values, std::int64_t rows,
                                   std::int64_t cols, float expert_scale, TwoLevelBlocks blocks) {
  TwoLevelMatrix matrix{.rows = rows, .cols = cols, .codes = {}, .scales = {}};
  matrix.codes.resize(values.size());
  matrix.scales.resize(values.size());
  const std::int64_t height = blocks == TwoLevelBlocks::kRows ? 1 : kTwoLevelBlock;
  const std::int64_t width = blocks == TwoLevelBlocks::kColumns ? 1 : kTwoLevelBlock;
  parallel_for((rows + height - 1) / height, [&](std::int64_t i) {
    for (std::int64_t col = 0; col < cols; col += width)
      quantize_block(values, block_of(matrix, i * height, col, blocks), expert_scale, matrix);
  });
  return matrix;
}

std::vector<std::uint16_t> two_level_values(const TwoLevelMatrix& matrix) {
  std::vector<std::uint16_t> values;
  values.reserve(matrix.codes.size());
  for (std::size_t i = 0; i < matrix.codes.size(); ++i)
    values.push_back(bf16_from_float(decode_e2m1(matrix.codes[i]) * decode_e4m3(matrix.scales[i])));
  return values;
}

std::vector<std::uint8_t> packed_row_codes(const TwoLevelMatrix& matrix) {
  std::vector<std::uint8_t> packed(matrix.codes.size() / 2);
  for (std::size_t i = 0; i < packed.size(); ++i)
    packed[i] = static_cast<std::uint8_t>(matrix.codes[2 * i] | (matrix.codes[2 * i + 1] << 4U));
  return packed;
}

std::vector<std::uint8_t> row_scales(const TwoLevelMatrix& matrix) {
  const std::int64_t width = 8 * block_count(matrix.cols);
  std::vector<std::uint8_t> scales(at(matrix.rows * width));
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t col = 0; col < matrix.cols; col += kTwoLevelBlock)
      scales[at(row * width + col / kTwoLevelBlock)] = matrix.scales[at(row * matrix.cols + col)];
  return scales;
}

std::vector<std::uint8_t> packed_column_codes(const TwoLevelMatrix& matrix, std::int64_t pitch,
                                              std::uint8_t untouched) {
  std::vector<std::uint8_t> packed(at(matrix.cols * pitch / 2), untouched);
  for (std::int64_t col = 0; col < matrix.cols; ++col)
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      std::uint8_t& byte = packed[at((col * pitch + row) / 2)];
      const auto code = static_cast<unsigned>(matrix.codes[at(row * matrix.cols + col)]);
      byte = static_cast<std::uint8_t>(row % 2 == 0 ? code : byte | (code << 4U));
    }
  return packed;
}

std::vector<std::uint8_t> column_scales(const TwoLevelMatrix& matrix, std::int64_t pitch,
                                        std::uint8_t untouched) {
  std::vector<std::uint8_t> scales(at(matrix.cols * pitch / kTwoLevelBlock), untouched);
  for (std::int64_t col = 0; col < matrix.cols; ++col)
    for (std::int64_t row = 0; row < matrix.rows; row += kTwoLevelBlock)
      scales[at((col * pitch + row) / kTwoLevelBlock)] = matrix.scales[at(row * matrix.cols + col)];
  return scales;
}

namespace {

// Puts scales of each group, `outer` by `inner` of them, in the order of the tensor cores.
// scale_of(e, i, j) is the scale of outer index i and inner index j.
template <typename ScaleOf>
std::vector<std::uint8_t> swizzle(const TransposeGroups& groups, std::int64_t cols, bool by_columns,
                                  const ScaleOf& scale_of) {
  const std::int64_t row_bytes = 8 * block_count(cols);
  std::vector<std::uint8_t> output(at(groups.output_offs.back() * row_bytes));
  for (std::size_t e = 0; e < groups.counts.size(); ++e) {
    const std::int64_t first = groups.output_offs[e], rows = groups.output_offs[e + 1] - first;
    const std::int64_t outer = by_columns ? kBlock * block_count(cols) : rows;
    const std::int64_t inner = by_columns ? rows / kTwoLevelBlock : row_bytes;
    for (std::int64_t i = 0; i < outer; ++i)
      for (std::int64_t j = 0; j < inner; ++j)
        output[at(first * row_bytes + (i / 128 * (inner / 4) + j / 4) * 512 + i % 32 * 16 +
                  i % 128 / 32 * 4 + j % 4)] = scale_of(e, i, j);
  }
  return output;
}

}  // namespace

std::vector<std::uint8_t> swizzled_row_scales(std::span<const std::uint8_t> scales,
                                              std::int64_t cols, const TransposeGroups& groups) {
  const std::int64_t width = 8 * block_count(cols);
  return swizzle(groups, cols, false, [&](std::size_t e, std::int64_t i, std::int64_t j) {
    return i < groups.counts[e] ? scales[at((groups.offs[e] + i) * width + j)] : std::uint8_t{0};
  });
}

std::vector<std::uint8_t> swizzled_column_scales(std::span<const std::uint8_t> scales,
                                                 std::int64_t cols, std::int64_t pitch,
                                                 const TransposeGroups& groups) {
  return swizzle(groups, cols, true, [&](std::size_t e, std::int64_t i, std::int64_t j) {
    const bool exists = i < cols && j * kTwoLevelBlock < groups.counts[e];
    return exists ? scales[at((i * pitch + groups.offs[e]) / kTwoLevelBlock + j)] : std::uint8_t{0};
  });
}

}  // namespace moejit::reference
