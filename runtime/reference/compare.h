// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Comparisons of a computed tensor with the wanted one. Each returns a report; none prints.

namespace moejit::testing {

struct Comparison {
  std::int64_t compared = 0;
  std::int64_t differing = 0;
  // In comparisons within bounds, the largest |got - wanted| / bound among finite values.
  double worst_ratio = 0.0;
  // Empty if equal. Else one or two sentences: how many differ, and where the first one is, with
  // both values in hex and as numbers.
  std::string message;

  bool is_equal() const { return differing == 0 && message.empty(); }
  explicit operator bool() const { return is_equal(); }
};

// The name of the compared tensor for the message, and its columns for the place in it.
struct TensorView {
  std::string_view name;
  std::int64_t cols = 1;                        // row and column are index / cols, index % cols
  std::span<const std::uint8_t> row_mask = {};  // if not empty: rows with a 0 are passed over
};

// Compare bit for bit. In bf16 and f32 any NaN equals any other: which NaN an operation returns is
// up to the hardware. Different lengths are a difference.
Comparison compare_e4m3(TensorView view, std::span<const std::uint8_t> got,
                        std::span<const std::uint8_t> wanted);
Comparison compare_bytes(TensorView view, std::span<const std::uint8_t> got,
                         std::span<const std::uint8_t> wanted);
Comparison compare_bf16(TensorView view, std::span<const std::uint16_t> got,
                        std::span<const std::uint16_t> wanted);
Comparison compare_f32(TensorView view, std::span<const float> got, std::span<const float> wanted);
Comparison compare_i32(TensorView view, std::span<const std::int32_t> got,
                       std::span<const std::int32_t> wanted);
Comparison compare_i64(TensorView view, std::span<const std::int64_t> got,
                       std::span<const std::int64_t> wanted);

// Accepts codes that are equal or neighbors in value; -0 equals +0, NaN equals only NaN.
Comparison compare_e4m3_within_one_code(TensorView view, std::span<const std::uint8_t> got,
                                        std::span<const std::uint8_t> wanted);

// Check that |got[i] - wanted[i]| <= bound[i]. NaN equals only NaN. A result beyond the type's
// range may be Inf or the largest finite number.
Comparison compare_bf16_within(TensorView view, std::span<const std::uint16_t> got,
                               std::span<const double> wanted, std::span<const double> bound);
Comparison compare_f32_within(TensorView view, std::span<const float> got,
                              std::span<const double> wanted, std::span<const double> bound);

// Returns dot(a, b) / (|a| |b|); 1 if both are zero.
double cosine_similarity(std::span<const double> a, std::span<const double> b);

}  // namespace moejit::testing

namespace moejit::reference {

// Bounds of the errors of sums whose order is the kernel's own.

// Returns the bound of `length` additions in fp32, in any order; `magnitude` is the sum of
// |products|.
double fp32_sum_error(double magnitude, std::int64_t length);

// Returns the bound of a result that is rounded to bf16 once more: this adds 2^-8 of the result, or
// 2^-134 among the subnormals.
double with_bf16_rounding(double bound, double value);

}  // namespace moejit::reference
