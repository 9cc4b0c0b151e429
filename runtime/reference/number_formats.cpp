// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moejit::reference {
namespace {

constexpr std::uint32_t kSignBit = 0x80000000U;
constexpr std::uint32_t kInfBits = 0x7F800000U;
constexpr std::uint8_t kNanCode = 0x7F;

struct Fp8Parameters {
  int mantissa_bits;
  int smallest_exponent;  // the smallest subnormal is 2^smallest_exponent
  std::uint32_t largest_finite_code;
};

constexpr Fp8Parameters parameters_of(Fp8Format format) {
  return format == Fp8Format::kE4m3 ? Fp8Parameters{3, -9, 0x7E} : Fp8Parameters{2, -16, 0x7B};
}

// Returns value / 2^shift, rounded to nearest even. `shift` is at least 1.
std::uint32_t shift_right_to_nearest_even(std::uint32_t value, int shift) {
  if (shift > 31) return 0;  // the callers' values have 24 bits: below a half
  const std::uint32_t quotient = value >> shift;
  const std::uint32_t rest = value - (quotient << shift);
  const std::uint32_t half = 1U << (shift - 1);
  const bool round_up = rest > half || (rest == half && (quotient & 1U) != 0);
  return quotient + (round_up ? 1U : 0U);
}

}  // namespace

std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t upper = bits >> 16;
  if ((bits & ~kSignBit) > kInfBits) return static_cast<std::uint16_t>(upper | 0x40U);
  const std::uint32_t lower = bits & 0xFFFFU;
  const bool round_up = lower > 0x8000U || (lower == 0x8000U && (upper & 1U) != 0);
  return static_cast<std::uint16_t>(upper + (round_up ? 1U : 0U));
}

std::vector<std::uint16_t> bf16_from_floats(std::span<const float> values) {
  std::vector<std::uint16_t> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(bf16_from_float(value));
  return rounded;
}

std::uint8_t encode_fp8(float value, Fp8Format format) {
  const auto [mantissa_bits, smallest_exponent, largest_finite_code] = parameters_of(format);
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfBits) return kNanCode;

  const std::uint32_t sign = bits >> 31 << 7;
  if (magnitude == kInfBits) return static_cast<std::uint8_t>(sign | largest_finite_code);

  // value = significand * 2^(exponent - 23), for normal and for subnormal floats.
  const std::uint32_t field = magnitude >> 23;
  const std::uint32_t fraction = magnitude & 0x7FFFFFU;
  const std::uint32_t significand = field == 0 ? fraction : fraction | 0x800000U;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - 127;

  // The result is a multiple of 2^unit. Consecutive codes are consecutive multiples, also across a
  // power of two and from the subnormals to the normals. So a carry needs no extra case.
  const int unit = std::max(exponent - mantissa_bits, smallest_exponent);
  const std::uint32_t multiple = shift_right_to_nearest_even(significand, unit - (exponent - 23));
  const std::uint32_t base = static_cast<std::uint32_t>(unit - smallest_exponent) << mantissa_bits;
  return static_cast<std::uint8_t>(sign | std::min(base + multiple, largest_finite_code));
}

namespace {

float compute_fp8(std::uint8_t code, Fp8Format format) {
  const auto [mantissa_bits, smallest_exponent, largest_finite_code] = parameters_of(format);
  const std::uint32_t magnitude = code & 0x7FU;
  const float sign = (code & 0x80U) != 0 ? -1.0F : 1.0F;
  if (magnitude > largest_finite_code) {
    const bool is_inf = format == Fp8Format::kE5m2 && magnitude == 0x7CU;
    return is_inf ? sign * std::numeric_limits<float>::infinity()
                  : std::numeric_limits<float>::quiet_NaN();
  }
  const int field = static_cast<int>(magnitude >> mantissa_bits);
  const int fraction = static_cast<int>(magnitude & ((1U << mantissa_bits) - 1U));
  const int significand = field == 0 ? fraction : fraction + (1 << mantissa_bits);
  const int steps = field == 0 ? 0 : field - 1;
  return sign * std::ldexp(static_cast<float>(significand), steps + smallest_exponent);
}

std::array<float, 256> all_of(Fp8Format format) {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = compute_fp8(static_cast<std::uint8_t>(code), format);
  return values;
}

}  // namespace

float decode_fp8(std::uint8_t code, Fp8Format format) {
  static const std::array<float, 256> kE4m3 = all_of(Fp8Format::kE4m3);
  static const std::array<float, 256> kE5m2 = all_of(Fp8Format::kE5m2);
  return format == Fp8Format::kE4m3 ? kE4m3[code] : kE5m2[code];
}

}  // namespace moejit::reference
