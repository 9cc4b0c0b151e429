// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/quantize.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scales.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

// One block of a row-major matrix: rows x cols elements from `first`, rows `stride` apart.
struct BlockView {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};

// Quantizes one block into `q` (same positions as in `values`) and returns its scale_inv.
float quantize_block(std::span<const std::uint16_t> values, const BlockView& block, float eps,
                     std::vector<std::uint8_t>& q) {
  float amax = 0.0F;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    for (std::int64_t c = 0; c < block.cols; ++c) {
      const float value = float_from_bf16(values[block.first + r * block.stride + c]);
      if (std::fabs(value) > amax) amax = std::fabs(value);  // false for NaN: passed over
    }
  }
  const BlockScale scale = scale_from_amax(amax, {.eps = eps});
  for (std::int64_t r = 0; r < block.rows; ++r) {
    for (std::int64_t c = 0; c < block.cols; ++c) {
      const std::int64_t i = block.first + r * block.stride + c;
      q[i] = encode_e4m3(float_from_bf16(values[i]) * scale.scale);
    }
  }
  return scale.scale_inv;
}

// Transposes `count` matrices [rows, cols] to [cols, rows].
template <typename T>
std::vector<T> transpose_each(const std::vector<T>& matrices, std::int64_t count, std::int64_t rows,
                              std::int64_t cols) {
  std::vector<T> result(matrices.size());
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col)
        result[(i * cols + col) * rows + row] = matrices[(i * rows + row) * cols + col];
    }
  }
  return result;
}

}  // namespace

QuantizedRows quantize_1x128(std::span<const std::uint16_t> values, std::int64_t rows,
                             std::int64_t cols, float eps, std::int64_t sharing) {
  const std::int64_t blocks = block_count(cols);
  QuantizedRows result{rows, cols, {}, {}};
  result.q.resize(rows * cols);
  result.scale_inv.resize(rows * blocks);
  parallel_for(rows, [&](std::int64_t row) {
    for (std::int64_t block = 0; block < blocks; block += sharing) {
      const std::int64_t first_col = block * kBlock;
      const BlockView view{row * cols + first_col, 1, std::min(sharing * kBlock, cols - first_col),
                           cols};
      const float scale_inv = quantize_block(values, view, eps, result.q);
      for (std::int64_t i = block; i < std::min(block + sharing, blocks); ++i)
        result.scale_inv[row * blocks + i] = scale_inv;
    }
  });
  return result;
}

QuantizedWeights quantize_128x128(std::span<const std::uint16_t> values, std::int64_t experts,
                                  std::int64_t rows, std::int64_t cols, std::int64_t sections,
                                  std::int64_t sharing) {
  QuantizedWeights result{experts, rows, cols, sections, {}, {}};
  const std::int64_t section_rows = rows / sections;
  const std::int64_t blocks_down = block_count(section_rows);
  const std::int64_t blocks_across = block_count(cols);
  result.q.resize(experts * rows * cols);
  result.scale_inv.resize(experts * sections * blocks_down * blocks_across);
  // i counts the rows of blocks of all sections of all experts: the rows of scale_inv.
  parallel_for(experts * sections * blocks_down, [&](std::int64_t i) {
    const std::int64_t row_in_section = i % blocks_down * kBlock;
    const std::int64_t first_row = i / blocks_down * section_rows + row_in_section;
    for (std::int64_t block = 0; block < blocks_across; block += sharing) {
      const std::int64_t first_col = block * kBlock;
      const BlockView view{first_row * cols + first_col,
                           std::min(kBlock, section_rows - row_in_section),
                           std::min(sharing * kBlock, cols - first_col), cols};
      const float scale_inv = quantize_block(values, view, 0.0F, result.q);
      for (std::int64_t j = block; j < std::min(block + sharing, blocks_across); ++j)
        result.scale_inv[i * blocks_across + j] = scale_inv;
    }
  });
  return result;
}

ColwiseWeights transpose(const QuantizedWeights& weights) {
  return {.q = transpose_each(weights.q, weights.experts, weights.rows, weights.cols),
          .scale_inv = transpose_each(weights.scale_inv, weights.experts, weights.scale_rows(),
                                      block_count(weights.cols))};
}

std::vector<float> dequantize(const QuantizedRows& matrix) {
  std::vector<float> result(matrix.q.size());
  const std::int64_t blocks = block_count(matrix.cols);
  for (std::int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    const std::int64_t block = i / matrix.cols * blocks + i % matrix.cols / kBlock;
    result[i] = decode_e4m3(matrix.q[i]) * matrix.scale_inv[block];
  }
  return result;
}

std::vector<float> dequantize(const QuantizedWeights& weights) {
  std::vector<float> result(weights.q.size());
  const std::int64_t blocks = block_count(weights.cols);
  for (std::int64_t row = 0; row < weights.experts * weights.rows; ++row) {
    const std::int64_t expert = row / weights.rows;
    const std::int64_t scale_row =
        expert * weights.scale_rows() + weights.scale_row_of(row % weights.rows);
    for (std::int64_t col = 0; col < weights.cols; ++col) {
      const std::int64_t i = row * weights.cols + col;
      result[i] = decode_e4m3(weights.q[i]) * weights.scale_inv[scale_row * blocks + col / kBlock];
    }
  }
  return result;
}

}  // namespace moejit::reference
