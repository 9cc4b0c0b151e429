// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cast to either FP8 format: round to nearest even, saturating, NaN to 0x7f.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// Casts two floats to two bytes, `low` in the low one.
template <typename Format>
MOEJIT_DEVICE uint16_t fp8_pair(float low, float high);
template <>
MOEJIT_DEVICE uint16_t fp8_pair<E4m3>(float low, float high) {
  return ptx::e4m3_pair(low, high);
}
template <>
MOEJIT_DEVICE uint16_t fp8_pair<E5m2>(float low, float high) {
  return ptx::e5m2_pair(low, high);
}

// Casts four values times `scale`, each product rounded to fp32, the first in the lowest byte.
template <typename Format>
MOEJIT_DEVICE uint32_t cast_quad(const float* value, float scale) {
  const uint32_t low =
      fp8_pair<Format>(ptx::multiply(value[0], scale), ptx::multiply(value[1], scale));
  const uint32_t high =
      fp8_pair<Format>(ptx::multiply(value[2], scale), ptx::multiply(value[3], scale));
  return low | (high << 16);
}

}  // namespace moejit::device
