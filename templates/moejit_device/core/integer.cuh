// SPDX-License-Identifier: Apache-2.0
#pragma once

// Integer arithmetic that kernels share.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// For value >= 0 and divisor > 0.
template <typename Integer>
MOEJIT_DEVICE constexpr Integer ceil_div(Integer value, Integer divisor) {
  return (value + divisor - 1) / divisor;
}

template <typename Integer>
MOEJIT_DEVICE constexpr Integer align_up(Integer value, Integer alignment) {
  return ceil_div(value, alignment) * alignment;
}

template <typename Integer>
MOEJIT_DEVICE constexpr Integer smaller(Integer a, Integer b) {
  return b < a ? b : a;
}

template <typename Integer>
MOEJIT_DEVICE constexpr Integer larger(Integer a, Integer b) {
  return a < b ? b : a;
}

}  // namespace moejit::device
