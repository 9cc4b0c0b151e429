// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/rounding.cuh.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE float reciprocal_from_one_on(float value) { return canonical(1.0f / value); }

MOEJIT_DEVICE float zero_if_below(float x, float bound, float value) {
  return x < bound ? 0.0f : value;
}

MOEJIT_DEVICE uint64_t nearest_u64(float value) {
  return static_cast<uint64_t>(__builtin_rint(static_cast<double>(value)));
}

}  // namespace moejit::device::ptx
