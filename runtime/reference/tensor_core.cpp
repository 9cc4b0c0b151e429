// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <type_traits>

namespace moejit::reference {
namespace {

constexpr int kFp32LeastExponent = -126;
constexpr int kFp32Fraction = 23;
constexpr int kLeastAlignment = -133;
constexpr int kLongestShift = 62;
constexpr std::uint32_t kNanBits = 0x7FFFFFFF;

// Returns the exponent of a format's smallest normal numbers.
int least_exponent(OperandFormat format) {
  switch (format) {
    case OperandFormat::kE4m3: return -6;
    case OperandFormat::kE5m2:
    case OperandFormat::kF16: return -14;
    case OperandFormat::kBf16: return -126;
  }
  return 0;
}

// How a tensor core adds `step` products: at once, with `fraction` bits behind the first bit of the
// largest term. A sum keeps `kept` of these bits.
struct Adder {
  std::int64_t step;
  int fraction;
  int kept;
};
Adder adder_of(OperandFormat format, const TensorCoreRule& rule) {
  const bool has_16_bits = format == OperandFormat::kBf16 || format == OperandFormat::kF16;
  return has_16_bits ? Adder{rule.products, rule.fraction, kFp32Fraction} : Adder{32, 13, 13};
}

struct Number {
  Number() = default;
  Number(float number, OperandFormat format) : value(number) {
    exponent = value == 0.0F ? TensorCoreNumbers::kNoExponent : TensorCoreNumbers::kNotFinite;
    if (value == 0.0F || !std::isfinite(value)) return;
    exponent = std::max(std::ilogb(value), least_exponent(format));
  }
  float value = 0.0F;
  std::int32_t exponent = 0;
};

using NumberTable = std::array<Number, 256>;

NumberTable numbers_of(Fp8Format codes, OperandFormat format) {
  NumberTable table;
  for (std::size_t code = 0; code < table.size(); ++code)
    table[code] = Number(decode_fp8(static_cast<std::uint8_t>(code), codes), format);
  return table;
}

const NumberTable& table_of(Fp8Format codes, bool multiplies_in_f16) {
  static const NumberTable kE4m3 = numbers_of(Fp8Format::kE4m3, OperandFormat::kE4m3);
  static const NumberTable kE5m2 = numbers_of(Fp8Format::kE5m2, OperandFormat::kE5m2);
  static const NumberTable kE4m3InF16 = numbers_of(Fp8Format::kE4m3, OperandFormat::kF16);
  static const NumberTable kE5m2InF16 = numbers_of(Fp8Format::kE5m2, OperandFormat::kF16);
  if (codes == Fp8Format::kE4m3) return multiplies_in_f16 ? kE4m3InF16 : kE4m3;
  return multiplies_in_f16 ? kE5m2InF16 : kE5m2;
}

// Returns 2^exponent, of a normal double. std::ldexp() is a call, and makes sure of the rest.
double power_of_two(int exponent) {
  constexpr int kBias = 1023, kFraction = 52;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kBias) << kFraction);
}

// Returns value * 2^-shift, cut toward zero; shifts to the left where `shift` is negative.
std::int64_t cut_right(std::int64_t value, int shift) {
  const std::int64_t magnitude = std::abs(value);
  const std::int64_t cut =
      shift >= 0 ? magnitude >> std::min(shift, kLongestShift) : magnitude << -shift;
  return value < 0 ? -cut : cut;
}

// The sum so far, which is finite, as the products are: an integer and an exponent.
struct Accumulator {
  explicit Accumulator(float sum) {
    if (sum == 0.0F) return;
    const auto bits = std::bit_cast<std::uint32_t>(std::fabs(sum));
    exponent = std::max(static_cast<int>(bits >> kFp32Fraction), 1) - 1 + kFp32LeastExponent;
    significand = static_cast<std::int64_t>(static_cast<double>(sum) *
                                            power_of_two(kFp32Fraction - exponent));
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
  return static_cast<float>(static_cast<double>(multiple) * power_of_two(unit));
}

float sum_not_finite(const float* a, const float* b, std::int64_t count, float sum) {
  double total = sum;
  for (std::int64_t k = 0; k < count; ++k) total += static_cast<double>(a[k]) * b[k];
  return std::isnan(total) ? float_of_bits(kNanBits) : static_cast<float>(total);
}

// The operands of the products of one step, numbers and exponents.
struct Operands {
  const std::int32_t* a_exponents;
  const std::int32_t* b_exponents;
  const float* a;
  const float* b;
};

// Returns the sum after one step. Products of operands, times a power of two, are exact in double.
// So conversions to integers cut them.
template <typename Count>
float add_products(const Operands& operands, Count count, const Adder& adder, float sum) {
  const Accumulator old(std::isfinite(sum) ? sum : 0.0F);
  std::int32_t largest = std::max(old.exponent, kLeastAlignment);
  for (std::int64_t k = 0; k < count; ++k)
    largest = std::max(largest, operands.a_exponents[k] + operands.b_exponents[k]);
  if (largest > TensorCoreNumbers::kNotFinite / 2 || !std::isfinite(sum))
    return sum_not_finite(operands.a, operands.b, count, sum);
  const double to_unit = power_of_two(adder.fraction - largest);
  std::int32_t products = 0;  // 16 of less than 2^27 each, or 32 of less than 2^15
  for (std::int64_t k = 0; k < count; ++k) {
    const double product = static_cast<double>(operands.a[k]) * static_cast<double>(operands.b[k]);
    products += static_cast<std::int32_t>(product * to_unit);
  }
  const std::int64_t total = products + cut_right(old.significand, kFp32Fraction - adder.fraction +
                                                                       largest - old.exponent);
  return keep(total, largest - adder.fraction, adder.kept);
}

// Returns the sum after up to 16 products of FP8 in f16, in two steps of 8.
float add_unpacked(const Operands& operands, std::int64_t count, const Adder& adder, float sum) {
  constexpr std::int64_t kQuad = 4, kPair = 2;
  for (std::int64_t half = 0; half < kPair; ++half) {
    std::array<std::int32_t, 8> a_exponents{}, b_exponents{};
    std::array<float, 8> a{}, b{};
    std::size_t chosen = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      if (k % kQuad / kPair != half) continue;
      a_exponents[chosen] = operands.a_exponents[k];
      b_exponents[chosen] = operands.b_exponents[k];
      a[chosen] = operands.a[k];
      b[chosen++] = operands.b[k];
    }
    sum = add_products({a_exponents.data(), b_exponents.data(), a.data(), b.data()},
                       static_cast<std::int64_t>(chosen), adder, sum);
  }
  return sum;
}

}  // namespace

TensorCoreNumbers::TensorCoreNumbers(std::span<const std::uint8_t> codes, Fp8Format format,
                                     const TensorCoreRule& rule)
    : format_(operand_format(format, rule)), rule_(rule) {
  const NumberTable& table = table_of(format, rule.multiplies_in_f16);
  reserve(codes.size());
  for (const std::uint8_t code : codes) {
    values_.push_back(table[code].value);
    exponents_.push_back(table[code].exponent);
  }
}

TensorCoreNumbers::TensorCoreNumbers(std::span<const std::uint16_t> bf16,
                                     const TensorCoreRule& rule)
    : format_(OperandFormat::kBf16), rule_(rule) {
  constexpr std::uint32_t kLastField = 0xFF;
  reserve(bf16.size());
  for (const std::uint16_t bits : bf16) {
    const std::uint32_t field = bits >> 7 & kLastField;
    const bool is_number = field < kLastField, is_zero = (bits & 0x7FFFU) == 0;
    const std::int32_t exponent = static_cast<std::int32_t>(std::max(field, 1U)) - 127;
    values_.push_back(float_from_bf16(bits));
    exponents_.push_back(!is_number ? kNotFinite : is_zero ? kNoExponent : exponent);
  }
}

TensorCoreNumbers::TensorCoreNumbers(std::span<const float> values, OperandFormat format,
                                     const TensorCoreRule& rule)
    : format_(format), rule_(rule) {
  reserve(values.size());
  for (const float value : values) {
    const Number number(value, format);
    values_.push_back(number.value);
    exponents_.push_back(number.exponent);
  }
}

void TensorCoreNumbers::reserve(std::size_t count) {
  values_.reserve(count);
  exponents_.reserve(count);
}

float tensor_core_chain(const TensorCoreNumbers& a, std::int64_t first_a,
                        const TensorCoreNumbers& b, std::int64_t first_b, std::int64_t length,
                        float sum) {
  const Adder adder = adder_of(a.format(), a.rule());
  const bool is_unpacked =
      a.format() == OperandFormat::kF16 && a.rule().multiplies_in_f16 && adder.step == 8;
  const std::int64_t step = is_unpacked ? 2 * adder.step : adder.step;
  for (std::int64_t first = 0; first < length; first += step) {
    const Operands operands{a.exponents() + first_a + first, b.exponents() + first_b + first,
                            a.values() + first_a + first, b.values() + first_b + first};
    const std::int64_t count = std::min(step, length - first);
    // The compiler makes vectors where it knows the number of products.
    if (is_unpacked) {
      sum = add_unpacked(operands, count, adder, sum);
    } else if (count == 32) {
      sum = add_products(operands, std::integral_constant<std::int64_t, 32>(), adder, sum);
    } else if (count == 16) {
      sum = add_products(operands, std::integral_constant<std::int64_t, 16>(), adder, sum);
    } else {
      sum = add_products(operands, count, adder, sum);
    }
  }
  return sum;
}

}  // namespace moejit::reference
