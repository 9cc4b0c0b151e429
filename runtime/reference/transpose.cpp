// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/transpose.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moejit::reference {
namespace {

constexpr std::int64_t kTile = 128;

bool is_zero(std::uint8_t byte) { return (byte & 0x7F) == 0; }

// Returns the code of the format's nearest finite value, found by trying all of them; of two
// equally near values it takes the even code. Doubles hold all these numbers exactly: none comes
// near the smallest double, 2^-1074.
std::uint8_t nearest(double magnitude, Fp8Format format) {
  const int largest = format == Fp8Format::kE4m3 ? 0x7E : 0x7B;
  int best = 0;
  for (int code = 1; code <= largest; ++code) {
    const double distance =
        std::fabs(decode_fp8(static_cast<std::uint8_t>(code), format) - magnitude);
    const double best_distance =
        std::fabs(decode_fp8(static_cast<std::uint8_t>(best), format) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best);
}

std::uint8_t ideal_byte(std::uint8_t byte, int shift, Fp8Format format) {
  const float value = decode_fp8(byte, format);
  if (!std::isfinite(value)) return byte;
  const std::uint8_t sign = byte & 0x80;
  return sign | nearest(std::ldexp(std::fabs(static_cast<double>(value)), -shift), format);
}

std::uint8_t fork_byte(std::uint8_t byte, int shift, Fp8Format format) {
  const int mantissa_bits = format == Fp8Format::kE4m3 ? 3 : 2;
  const int exponent = (byte & 0x7F) >> mantissa_bits;
  const int mantissa = byte & ((1 << mantissa_bits) - 1);
  if (exponent == 0) return 0;
  int lowered = exponent - shift;
  if (lowered < 1) lowered = 0;
  return static_cast<std::uint8_t>((byte & 0x80) | (lowered << mantissa_bits) | mantissa);
}

// Returns log2 of a power of two; 0 counts as the smallest scale there is.
int exponent_of(float scale) { return scale == 0.0F ? -127 : std::max(-127, std::ilogb(scale)); }

class Transposing {
 public:
  Transposing(const QuantizedRows& input, Fp8Format format, TransposeRule rule, Transposed& output,
              std::int64_t output_cols)
      : input_(input), rule_(rule), output_(output), output_cols_(output_cols) {
    for (int shift = 0; shift < kShifts; ++shift)
      for (int byte = 0; byte < 256; ++byte)
        table_.push_back(shifted_byte(static_cast<std::uint8_t>(byte), shift, format, rule));
  }

  // Moves the rows from `first_row` on, at most 128, of the columns from `first_col` on.
  void move_tile(std::int64_t first_row, std::int64_t rows, std::int64_t first_col,
                 std::int64_t first_output) {
    const std::int64_t cols = std::min(kTile, input_.cols - first_col);
    const float scale = tile_scale(first_row, rows, first_col, cols);
    at(output_.scale_inv, first_col / kTile, output_cols_ / kTile, first_output / kTile) = scale;
    for (std::int64_t col = first_col; col < first_col + cols; ++col) {
      for (std::int64_t r = 0; r < kTile; ++r) {
        std::uint8_t& target = at(output_.bytes, col, output_cols_, first_output + r);
        target = r < rows ? moved(first_row + r, col, scale) : std::uint8_t{0};
      }
    }
  }

 private:
  static constexpr int kShifts = 64;  // the largest value of E5M2 becomes 0 at 34

  template <typename T>
  static T& at(std::vector<T>& values, std::int64_t row, std::int64_t cols, std::int64_t col) {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  std::uint8_t byte_of(std::int64_t row, std::int64_t col) const {
    return input_.q[static_cast<std::size_t>(row * input_.cols + col)];
  }
  float scale_of(std::int64_t row, std::int64_t col) const {
    const std::int64_t blocks = (input_.cols + kTile - 1) / kTile;
    return input_.scale_inv[static_cast<std::size_t>(row * blocks + col / kTile)];
  }

  float tile_scale(std::int64_t first_row, std::int64_t rows, std::int64_t first_col,
                   std::int64_t cols) const {
    float of_all = 0.0F, of_nonzero = 0.0F;
    bool has_nonzero = false;
    for (std::int64_t row = first_row; row < first_row + rows; ++row) {
      bool is_nonzero = false;
      for (std::int64_t col = first_col; col < first_col + cols; ++col)
        is_nonzero = is_nonzero || !is_zero(byte_of(row, col));
      const float scale = scale_of(row, first_col);
      of_all = std::max(of_all, scale);
      if (is_nonzero) of_nonzero = std::max(of_nonzero, scale);
      has_nonzero = has_nonzero || is_nonzero;
    }
    return rule_ == TransposeRule::kIdeal && has_nonzero ? of_nonzero : of_all;
  }

  // Returns the moved byte. The scale of a row of zeros may be larger than the tile's, hence the
  // clamp.
  std::uint8_t moved(std::int64_t row, std::int64_t col, float scale) {
    const int shift =
        std::clamp(exponent_of(scale) - exponent_of(scale_of(row, col)), 0, kShifts - 1);
    const std::uint8_t byte = byte_of(row, col);
    const std::uint8_t result = table_[static_cast<std::size_t>(shift * 256 + byte)];
    if (!is_zero(byte) && is_zero(result)) ++output_.flushed;
    return result;
  }

  const QuantizedRows& input_;
  TransposeRule rule_;
  Transposed& output_;
  std::int64_t output_cols_;
  std::vector<std::uint8_t> table_;
};

}  // namespace

std::uint8_t shifted_byte(std::uint8_t byte, int shift, Fp8Format format, TransposeRule rule) {
  return rule == TransposeRule::kIdeal ? ideal_byte(byte, shift, format)
                                       : fork_byte(byte, shift, format);
}

Transposed transpose(const QuantizedRows& input, const TransposeGroups& groups,
                     std::int64_t output_cols, Fp8Format format, TransposeRule rule,
                     std::uint8_t untouched) {
  const std::int64_t blocks = (input.cols + kTile - 1) / kTile;
  float untouched_scale = 0.0F;
  std::memset(&untouched_scale, untouched, sizeof(float));
  Transposed output{.bytes = std::vector<std::uint8_t>(
                        static_cast<std::size_t>(input.cols * output_cols), untouched),
                    .scale_inv = std::vector<float>(
                        static_cast<std::size_t>(blocks * (output_cols / kTile)), untouched_scale)};
  Transposing transposing(input, format, rule, output, output_cols);
  for (std::size_t e = 0; e < groups.counts.size(); ++e) {
    for (std::int64_t done = 0; done < groups.counts[e]; done += kTile) {
      for (std::int64_t col = 0; col < input.cols; col += kTile) {
        transposing.move_tile(groups.offs[e] + done, std::min(kTile, groups.counts[e] - done), col,
                              groups.output_offs[e] + done);
      }
    }
  }
  return output;
}

}  // namespace moejit::reference
