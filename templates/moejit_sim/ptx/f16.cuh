// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/f16.cuh: the same bits as the GPU.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device::ptx {

struct F16Quad {
  uint32_t low, high;
};

MOEJIT_DEVICE float float_from_f16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31u) return float_from_bits(mantissa != 0 ? 0x7fffffffu : sign | 0x7f800000u);
  if (exponent != 0u)
    return float_from_bits(sign | ((exponent + 127u - 15u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return float_from_bits(sign | bits_of(magnitude));
}

MOEJIT_DEVICE float float_from_f16_low(uint32_t pair) { return float_from_f16(pair & 0xffffu); }
MOEJIT_DEVICE float float_from_f16_high(uint32_t pair) { return float_from_f16(pair >> 16); }

MOEJIT_DEVICE uint32_t f16_bits(float value) {
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr uint32_t kRoundsToInfinity = 0x477ff000u;
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= kRoundsToInfinity) return sign | 0x7c00u;
  if (magnitude < kSmallestNormal) {
    // Subnormals are multiples of 2^-24, the unit in the last place of 2^-1: the addition rounds.
    return sign | (bits_of(float_from_bits(magnitude) + 0.5f) - bits_of(0.5f));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | ((rounded >> 13) - ((127u - 15u) << 10));
}
MOEJIT_DEVICE uint32_t f16_pair(float low, float high) {
  return f16_bits(low) | (f16_bits(high) << 16);
}

// An e4m3 byte has the fields of an f16 that is 2^8 times smaller; e5m2 is an f16's high byte.
MOEJIT_DEVICE uint32_t f16_bits_of_e4m3(uint32_t byte) {
  if ((byte & 0x7fu) == 0x7fu) return 0x7fffu;
  return f16_bits(float_from_f16(((byte & 0x80u) << 8) | ((byte & 0x7fu) << 7)) * 256.0f);
}
MOEJIT_DEVICE uint32_t f16_bits_of_e5m2(uint32_t byte) {
  return (byte & 0x7fu) > 0x7cu ? 0x7fffu : byte << 8;
}
MOEJIT_DEVICE uint32_t e5m2_bits_of_f16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t sign = (bits >> 8) & 0x80u;
  if (magnitude > 0x7c00u) return 0x7fu;
  const uint32_t rounded = (magnitude + 0x7fu + ((magnitude >> 8) & 1u)) >> 8;
  return sign | (rounded > 0x7bu ? 0x7bu : rounded);
}

template <typename Convert>
MOEJIT_DEVICE F16Quad f16_quad_of(uint32_t bytes, Convert convert) {
  return {convert(bytes & 0xffu) | (convert((bytes >> 8) & 0xffu) << 16),
          convert((bytes >> 16) & 0xffu) | (convert(bytes >> 24) << 16)};
}
template <typename Convert>
MOEJIT_DEVICE uint32_t bytes_of(const F16Quad& quad, Convert convert) {
  return convert(quad.low & 0xffffu) | (convert(quad.low >> 16) << 8) |
         (convert(quad.high & 0xffffu) << 16) | (convert(quad.high >> 16) << 24);
}
MOEJIT_DEVICE F16Quad f16_from_e4m3(uint32_t bytes) { return f16_quad_of(bytes, f16_bits_of_e4m3); }
MOEJIT_DEVICE F16Quad f16_from_e5m2(uint32_t bytes) { return f16_quad_of(bytes, f16_bits_of_e5m2); }
MOEJIT_DEVICE uint32_t e4m3_from_f16(const F16Quad& quad) {
  return bytes_of(quad, [](uint32_t bits) { return e4m3_bits(float_from_f16(bits)); });
}
MOEJIT_DEVICE uint32_t e5m2_from_f16(const F16Quad& quad) {
  return bytes_of(quad, e5m2_bits_of_f16);
}

// The product of two f16 is exact in fp32: one rounding.
template <int32_t kHalf>
MOEJIT_DEVICE F16Quad multiply(const F16Quad& quad, uint32_t factors) {
  const float factor = float_from_f16((factors >> (16 * kHalf)) & 0xffffu);
  const auto pair = [&](uint32_t word) {
    return f16_pair(multiply(float_from_f16(word & 0xffffu), factor),
                    multiply(float_from_f16(word >> 16), factor));
  };
  return {pair(quad.low), pair(quad.high)};
}

}  // namespace moejit::device::ptx
