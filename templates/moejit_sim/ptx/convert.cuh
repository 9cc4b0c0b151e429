// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/convert.cuh: the same bits as the GPU, except that
// exp2_approximate and reciprocal_approximate are correctly rounded here.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE float float_from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MOEJIT_DEVICE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }

// Arithmetic on the GPU gives one NaN; x86 hands through the operand's or makes a negative one.
MOEJIT_DEVICE float canonical(float value) {
  return value == value ? value : float_from_bits(0x7fffffffu);
}

MOEJIT_DEVICE float multiply(float a, float b) { return canonical(a * b); }
MOEJIT_DEVICE float add(float a, float b) { return canonical(a + b); }
MOEJIT_DEVICE float fused_multiply_add(float a, float b, float c) {
  return canonical(__builtin_fmaf(a, b, c));
}
MOEJIT_DEVICE float divide(float a, float b) { return canonical(a / b); }
MOEJIT_DEVICE float reciprocal(float value) { return canonical(1.0f / value); }

// +0 is larger than -0.
MOEJIT_DEVICE float max_number(float a, float b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return float_from_bits(bits_of(a) & bits_of(b));
  return a > b ? a : b;
}
MOEJIT_DEVICE float absolute(float value) { return float_from_bits(bits_of(value) & 0x7fffffffu); }

MOEJIT_DEVICE float exp2_approximate(float x) {
  return canonical(static_cast<float>(__builtin_exp2(static_cast<double>(x))));
}
MOEJIT_DEVICE float reciprocal_approximate(float x) { return canonical(1.0f / x); }

MOEJIT_DEVICE float float_from_bf16_low(uint32_t pair) { return float_from_bits(pair << 16); }
MOEJIT_DEVICE float float_from_bf16_high(uint32_t pair) {
  return float_from_bits(pair & 0xffff0000u);
}

MOEJIT_DEVICE uint32_t larger_bf16_magnitude(uint32_t a, uint32_t b) {
  constexpr uint32_t kInfinity = 0x7f80u, kNan = 0x7fffu;
  const uint32_t x = a & 0x7fffu;
  const uint32_t y = b & 0x7fffu;
  if (x > kInfinity) return y > kInfinity ? kNan : y;
  return x > y || y > kInfinity ? x : y;
}
// The sign is the product's, so that nobody takes it for the sign of the value.
MOEJIT_DEVICE uint32_t larger_bf16_magnitudes(uint32_t a, uint32_t b) {
  const uint32_t low = larger_bf16_magnitude(a, b);
  const uint32_t high = larger_bf16_magnitude(a >> 16, b >> 16);
  return low | (high << 16) | ((a ^ b) & 0x80008000u);
}

MOEJIT_DEVICE uint32_t bf16_bits(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
MOEJIT_DEVICE uint32_t bf16_pair(float low, float high) {
  return bf16_bits(low) | (bf16_bits(high) << 16);
}

MOEJIT_DEVICE uint32_t e4m3_bits(float value) {
  constexpr uint32_t kSmallestNormal = 0x3c800000u;  // 2^-6
  constexpr uint32_t kLargest = 0x43e00000u;         // 448
  const uint32_t sign = (bits_of(value) >> 24) & 0x80u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= kLargest) return sign | 0x7eu;
  if (magnitude < kSmallestNormal) {
    // Subnormals are multiples of 2^-9, the unit in the last place of 2^14: the addition rounds.
    const float rounded = float_from_bits(magnitude) + 16384.0f;
    return sign | (bits_of(rounded) - bits_of(16384.0f));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | ((rounded >> 20) - ((127u - 7u) << 3));
}
MOEJIT_DEVICE uint16_t e4m3_pair(float low, float high) {
  return static_cast<uint16_t>(e4m3_bits(low) | (e4m3_bits(high) << 8));
}

MOEJIT_DEVICE uint32_t e5m2_bits(float value) {
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr uint32_t kLargest = 0x47600000u;         // 57344
  const uint32_t sign = (bits_of(value) >> 24) & 0x80u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= kLargest) return sign | 0x7bu;
  if (magnitude < kSmallestNormal) {
    // Subnormals are multiples of 2^-16, the unit in the last place of 2^7: the addition rounds.
    const float rounded = float_from_bits(magnitude) + 128.0f;
    return sign | (bits_of(rounded) - bits_of(128.0f));
  }
  const uint32_t rounded = magnitude + 0xfffffu + ((magnitude >> 21) & 1u);
  return sign | ((rounded >> 21) - ((127u - 15u) << 2));
}
MOEJIT_DEVICE uint16_t e5m2_pair(float low, float high) {
  return static_cast<uint16_t>(e5m2_bits(low) | (e5m2_bits(high) << 8));
}

}  // namespace moejit::device::ptx
