// SPDX-License-Identifier: Apache-2.0
#pragma once

// The formats of WGMMA's operands, as tensor cores read them. A number has the exponent of its
// field. Subnormals have the exponent of the smallest normal numbers.

#include <cstdint>

namespace moejit::runtime {
namespace {  // product.h says why

typedef signed char Bytes32 __attribute__((vector_size(32)));
typedef int16_t Shorts16 __attribute__((vector_size(32)));

// What codes of 8 bits are.
struct Fp8Table {
  float value[256];  // NaN and infinities too
  signed char exponent[256];
};

constexpr Fp8Table make_fp8_table(int32_t mantissa_bits, int32_t bias, bool has_infinities,
                                  int32_t no_exponent) {
  Fp8Table table{};
  const int32_t ones = (1 << mantissa_bits) - 1;
  const int32_t last_field = 127 >> mantissa_bits;
  for (int32_t code = 0; code < 256; ++code) {
    const int32_t field = (code & 127) >> mantissa_bits;
    const int32_t mantissa = code & ones;
    const int32_t exponent = (field > 0 ? field : 1) - bias;
    auto value = static_cast<float>(field > 0 ? mantissa + ones + 1 : mantissa);
    for (int32_t e = exponent - mantissa_bits; e < 0; ++e) value /= 2;
    for (int32_t e = exponent - mantissa_bits; e > 0; --e) value *= 2;
    const bool is_number = field < last_field || (!has_infinities && mantissa < ones);
    if (!is_number) value = has_infinities && mantissa == 0 ? __builtin_inff() : __builtin_nanf("");
    table.value[code] = (code & 128) != 0 ? -value : value;
    table.exponent[code] =
        static_cast<signed char>(is_number && (code & 127) != 0 ? exponent : no_exponent);
  }
  return table;
}

// Each format has
//   kDepth, kFraction, kKept   products of an instruction; bits behind the first one that terms and
//                              sums have (tensor_core.h)
//   Exponents                  a vector of exponents, kDepth / 8 products by 8 columns
//   kNoExponent                stands for 0, infinities and NaN: plus any number's exponent it
//                              stays below a half of itself, as no product's exponent does
//   kLeast, kMost              exponents of products, if value() is narrow, for Real = float
struct WgmmaFp8 {
  static constexpr int32_t kDepth = 32;
  static constexpr int32_t kFraction = 13;
  static constexpr int32_t kKept = 13;
  static constexpr int32_t kNoExponent = -64;
  static constexpr int32_t kLeast = -28;
  static constexpr int32_t kMost = 30;
  using Exponents = Bytes32;
  static bool is_narrow(int32_t) { return true; }
};

struct WgmmaE4m3 : WgmmaFp8 {
  static constexpr Fp8Table kCodes = make_fp8_table(3, 7, false, kNoExponent);
  static float value(const unsigned char* row, int32_t k) { return kCodes.value[row[k]]; }
  static int32_t exponent(const unsigned char* row, int32_t k) { return kCodes.exponent[row[k]]; }
};

struct WgmmaE5m2 : WgmmaFp8 {
  static constexpr Fp8Table kCodes = make_fp8_table(2, 15, true, kNoExponent);
  static float value(const unsigned char* row, int32_t k) { return kCodes.value[row[k]]; }
  static int32_t exponent(const unsigned char* row, int32_t k) { return kCodes.exponent[row[k]]; }
};

struct WgmmaBf16 {
  static constexpr int32_t kDepth = 16;
  static constexpr int32_t kFraction = 25;
  static constexpr int32_t kKept = 23;
  static constexpr int32_t kNoExponent = -10000;
  static constexpr int32_t kLeast = -60;
  static constexpr int32_t kMost = 60;
  using Exponents = Shorts16;
  static bool is_narrow(int32_t exponent) {
    return exponent == kNoExponent || (exponent >= kLeast / 2 && exponent <= kMost / 2);
  }
  static float value(const unsigned char* row, int32_t k) {
    const uint32_t bits = (uint32_t{row[2 * k]} << 16) | (uint32_t{row[2 * k + 1]} << 24);
    return __builtin_bit_cast(float, bits);
  }
  static int32_t exponent(const unsigned char* row, int32_t k) {
    const int32_t bits = (row[2 * k] | row[2 * k + 1] << 8) & 0x7fff;
    const int32_t field = bits >> 7;
    if (bits == 0 || field == 255) return kNoExponent;
    return (field > 0 ? field : 1) - 127;
  }
};

}  // namespace
}  // namespace moejit::runtime
