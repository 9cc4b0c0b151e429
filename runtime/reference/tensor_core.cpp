// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace moejit::reference {
namespace {

constexpr int kFp32LeastExponent = -126;
constexpr int kFp32Fraction = 23;
constexpr int kLeastAlignment = -133;
constexpr int kLongestShift = 62;
constexpr std::uint32_t kNanBits = 0x7FFFFFFF;

// A format: bits behind the first one, and the exponent of the smallest normal numbers.
struct FormatShape {
  int fraction_bits;
  int least_exponent;
};
FormatShape shape_of(OperandFormat format) {
  switch (format) {
    case OperandFormat::kE4m3: return {3, -6};
    case OperandFormat::kE5m2: return {2, -14};
    case OperandFormat::kBf16: return {7, -126};
  }
  return {};
}

// How a tensor core adds products: at once, with so many bits behind the first one of the largest
// term, of which sums keep so many.
struct Adder {
  std::int64_t step;
  int fraction;
  int kept;
};
Adder adder_of(OperandFormat format) {
  return format == OperandFormat::kBf16 ? Adder{16, 25, kFp32Fraction} : Adder{32, 13, 13};
}

struct Number {
  Number() = default;
  Number(float number, OperandFormat format) : value(number) {
    exponent = value == 0.0F ? TensorCoreNumbers::kNoExponent : TensorCoreNumbers::kNotFinite;
    if (value == 0.0F || !std::isfinite(value)) return;
    const FormatShape shape = shape_of(format);
    exponent = std::max(std::ilogb(value), shape.least_exponent);
    significand = static_cast<std::int32_t>(std::ldexp(value, shape.fraction_bits - exponent));
  }
  float value = 0.0F;
  std::int32_t significand = 0;
  std::int32_t exponent = 0;
};

using NumberTable = std::array<Number, 256>;

NumberTable numbers_of(Fp8Format format) {
  NumberTable table;
  for (std::size_t code = 0; code < table.size(); ++code)
    table[code] =
        Number(decode_fp8(static_cast<std::uint8_t>(code), format), operand_format(format));
  return table;
}

// Returns value * 2^-shift, cut toward zero; shifts to the left where `shift` is negative.
std::int64_t cut_right(std::int64_t value, int shift) {
  const std::int64_t magnitude = std::abs(value);
  const std::int64_t cut =
      shift >= 0 ? magnitude >> std::min(shift, kLongestShift) : magnitude << -shift;
  return value < 0 ? -cut : cut;
}

// The sum so far as the products are: an integer and an exponent.
struct Accumulator {
  explicit Accumulator(float sum) {
    if (sum == 0.0F) return;
    exponent = std::max(std::ilogb(sum), kFp32LeastExponent);
    significand = static_cast<std::int64_t>(std::ldexp(sum, kFp32Fraction - exponent));
  }
  std::int64_t significand = 0;
  int exponent = TensorCoreNumbers::kNoExponent;
};

// Returns total * 2^exponent, cut toward zero to what a sum keeps.
float keep(std::int64_t total, int exponent, int kept) {
  if (total == 0) return 0.0F;
  const int top = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::abs(total)))) - 1;
  const int unit = std::max(top + exponent, kFp32LeastExponent) - kept;
  const std::int64_t multiple = cut_right(total, unit - exponent);
  return static_cast<float>(std::ldexp(static_cast<double>(multiple), unit));
}

float sum_not_finite(const float* a, const float* b, std::int64_t count, float sum) {
  double total = sum;
  for (std::int64_t k = 0; k < count; ++k) total += static_cast<double>(a[k]) * b[k];
  return std::isnan(total) ? float_of_bits(kNanBits) : static_cast<float>(total);
}

}  // namespace

TensorCoreNumbers::TensorCoreNumbers(std::span<const std::uint8_t> codes, Fp8Format format)
    : format_(operand_format(format)) {
  static const NumberTable kE4m3 = numbers_of(Fp8Format::kE4m3);
  static const NumberTable kE5m2 = numbers_of(Fp8Format::kE5m2);
  const NumberTable& table = format == Fp8Format::kE4m3 ? kE4m3 : kE5m2;
  reserve(codes.size());
  for (const std::uint8_t code : codes) {
    values_.push_back(table[code].value);
    significands_.push_back(table[code].significand);
    exponents_.push_back(table[code].exponent);
  }
}

TensorCoreNumbers::TensorCoreNumbers(std::span<const std::uint16_t> bf16)
    : format_(OperandFormat::kBf16) {
  constexpr std::uint32_t kImplicitBit = 0x80, kLastField = 0xFF;
  reserve(bf16.size());
  for (const std::uint16_t bits : bf16) {
    const std::uint32_t field = bits >> 7 & kLastField;
    const auto magnitude =
        static_cast<std::int32_t>((bits & 0x7FU) | (field > 0 ? kImplicitBit : 0));
    const bool is_number = field < kLastField;
    const std::int32_t exponent = static_cast<std::int32_t>(std::max(field, 1U)) - 127;
    values_.push_back(float_from_bf16(bits));
    significands_.push_back(!is_number ? 0 : (bits & 0x8000U) != 0 ? -magnitude : magnitude);
    exponents_.push_back(!is_number ? kNotFinite : magnitude == 0 ? kNoExponent : exponent);
  }
}

TensorCoreNumbers::TensorCoreNumbers(std::span<const float> values, OperandFormat format)
    : format_(format) {
  reserve(values.size());
  for (const float value : values) {
    const Number number(value, format);
    values_.push_back(number.value);
    significands_.push_back(number.significand);
    exponents_.push_back(number.exponent);
  }
}

void TensorCoreNumbers::reserve(std::size_t count) {
  values_.reserve(count);
  significands_.reserve(count);
  exponents_.reserve(count);
}

float tensor_core_chain(const TensorCoreNumbers& a, std::int64_t first_a,
                        const TensorCoreNumbers& b, std::int64_t first_b, std::int64_t length,
                        float sum) {
  const Adder adder = adder_of(a.format());
  const int to_unit =
      adder.fraction - shape_of(a.format()).fraction_bits - shape_of(b.format()).fraction_bits;
  for (std::int64_t first = 0; first < length; first += adder.step) {
    const std::int64_t count = std::min(adder.step, length - first);
    const std::int32_t* a_exponents = a.exponents() + first_a + first;
    const std::int32_t* b_exponents = b.exponents() + first_b + first;
    const Accumulator old(std::isfinite(sum) ? sum : 0.0F);
    int largest = std::max(old.exponent, kLeastAlignment);
    for (std::int64_t k = 0; k < count; ++k)
      largest = std::max(largest, a_exponents[k] + b_exponents[k]);
    if (largest > TensorCoreNumbers::kNotFinite / 2 || !std::isfinite(sum)) {
      sum = sum_not_finite(a.values() + first_a + first, b.values() + first_b + first, count, sum);
      continue;
    }
    const std::int32_t* a_significands = a.significands() + first_a + first;
    const std::int32_t* b_significands = b.significands() + first_b + first;
    std::int64_t total =
        cut_right(old.significand, kFp32Fraction - adder.fraction + largest - old.exponent);
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int32_t product = a_significands[k] * b_significands[k] * (1 << to_unit);
      const int shift = std::min(largest - a_exponents[k] - b_exponents[k], 31);
      // The magnitude is cut; without a branch, since signs are random.
      const std::int32_t sign = product >> 31;
      total += (((product ^ sign) - sign) >> shift ^ sign) - sign;
    }
    sum = keep(total, largest - adder.fraction, adder.kept);
  }
  return sum;
}

}  // namespace moejit::reference
