// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/matrices.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace moejit::runtime {
namespace {

// 1 to 8 are 2^e * (8 + m) / 8 with e from 0 to 3.
uint8_t e4m3_of(float value) {
  if (value == 0.0f) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(std::fabs(value), &exponent);  // from 0.5 on
  const auto bits = static_cast<uint32_t>((exponent - 1 + 7) << 3) |
                    static_cast<uint32_t>(16.0f * mantissa - 8.0f);
  return static_cast<uint8_t>(bits | (value < 0 ? 0x80u : 0u));
}

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto place = bytes.size();
  bytes.resize(place + sizeof(T));
  std::memcpy(bytes.data() + place, &value, sizeof(T));
}

}  // namespace

Matrix random_integers(std::size_t rows, std::size_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  Matrix matrix{rows, columns, std::vector<float>(rows * columns)};
  for (float& value : matrix.values) value = static_cast<float>(random() % 17) - 8.0f;
  return matrix;
}

std::vector<float> product(const Matrix& a, const Matrix& b) {
  std::vector<float> sums(a.rows * b.rows);
  for (std::size_t row = 0; row < a.rows; ++row) {
    for (std::size_t column = 0; column < b.rows; ++column) {
      float sum = 0.0f;
      for (std::size_t k = 0; k < a.columns; ++k) sum += a.at(row, k) * b.at(column, k);
      sums[row * b.rows + column] = sum;
    }
  }
  return sums;
}

std::vector<std::byte> encoded(const Matrix& matrix, compiler::DType dtype) {
  std::vector<std::byte> bytes;
  for (const float value : matrix.values) {
    if (dtype == compiler::DType::kF8E4M3) {
      append(bytes, e4m3_of(value));
    } else if (dtype == compiler::DType::kBF16) {
      append(bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    } else {
      append(bytes, value);
    }
  }
  return bytes;
}

compiler::TensorBox box_of(compiler::DType dtype, int64_t columns, int64_t rows,
                           int32_t box_columns, int32_t box_rows, bool is_swizzled) {
  return {.dtype = dtype,
          .rank = 2,
          .dims = {columns, rows, 1},
          .strides_bytes = {columns * compiler::size_bytes(dtype), 0},
          .box = {box_columns, box_rows, 1},
          .is_swizzled = is_swizzled};
}

}  // namespace moejit::runtime
