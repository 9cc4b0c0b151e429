// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a kernel whose CTA has values of one expert, or of one matrix, records their largest
// magnitude for the scale of a later step: not at all, or it raises a column of a state.

#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

struct NoColumn {
  static constexpr bool kIsRecorded = false;

  MOEJIT_DEVICE static void raise(float*, int64_t, float) {}
};

// Expert e has column e * kStride + kFirst of `state`. Magnitudes are ordered like their bits, and
// a maximum is the same in any order. NaN and 0 raise nothing.
template <int32_t kStride, int32_t kFirst>
struct ColumnOfExpert {
  static_assert(0 <= kFirst && kFirst < kStride, "an expert has kStride columns");
  static constexpr bool kIsRecorded = true;

  // Is called by one thread.
  MOEJIT_DEVICE static void raise(float* state, int64_t expert, float amax) {
    const auto column = ptx::global(state) + (expert * kStride + kFirst);
    if (amax > 0.0f) ptx::atomic_max(ptx::as<uint32_t>(column), ptx::bits_of(amax));
  }
};

}  // namespace moejit::device
