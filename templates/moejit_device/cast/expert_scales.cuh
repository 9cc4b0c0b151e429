// SPDX-License-Identifier: Apache-2.0
#pragma once

// One scale for each expert, of its largest magnitude: a CTA takes an expert. The rule, for a
// format whose largest number is M, with fl() rounding to fp32:
//
//   amax = 0 or Inf: scale = 1
//   scale = fl(M / amax), the largest finite number where that overflows;
//           with kPowerOfTwo its mantissa bits are cleared
//   scale_inv = fl(1 / scale)
//
// Maxima are the same in any order, so results depend on nothing else.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/expert_scales.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kMagnitudes = 14;
//   constexpr uint32_t kMaxBits = 0x43e00000u;  // 448
//   constexpr bool kPowerOfTwo = false;
//   constexpr int32_t kThreads = 1024;
//
//   using Kernel = ExpertScales<MagnitudesOfRows<kMagnitudes>, kMaxBits, kPowerOfTwo, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_..., ExpertScalesParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/expert_scales_params.h"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

// A range of magnitudes.
struct Magnitudes {
  int64_t first;
  int64_t count;
};

// A group is the rows that counts and offs say.
template <int32_t kMagnitudes>
struct MagnitudesOfRows {
  MOEJIT_DEVICE static Magnitudes of(const ExpertScalesParams& params, int32_t group) {
    const int64_t first = ptx::load(ptx::global(params.offs) + group);
    const int64_t end = smaller(first + ptx::load(ptx::global(params.counts) + group), params.rows);
    return {first * kMagnitudes, (end - first) * kMagnitudes};
  }
};

// A group is a matrix.
template <int32_t kMagnitudes>
struct MagnitudesOfMatrices {
  MOEJIT_DEVICE static Magnitudes of(const ExpertScalesParams&, int32_t group) {
    return {int64_t{group} * kMagnitudes, kMagnitudes};
  }
};

// The quotient rule above, for amax >= 0, never NaN.
template <uint32_t kMaxBits, bool kPowerOfTwo>
MOEJIT_DEVICE float scale_from_amax(float amax) {
  constexpr uint32_t kInfinity = 0x7f800000u, kLargest = 0x7f7fffffu;
  const uint32_t bits = ptx::bits_of(amax);
  if (bits == 0u || bits == kInfinity) return 1.0f;
  uint32_t scale = ptx::bits_of(ptx::divide(ptx::float_from_bits(kMaxBits), amax));
  if (scale == kInfinity) scale = kLargest;
  return ptx::float_from_bits(kPowerOfTwo ? scale & kInfinity : scale);
}

template <typename Groups, uint32_t kMaxBits, bool kPowerOfTwo, int32_t kThreads_>
struct ExpertScales {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 4 * kWarps;

  // A CTA for each group.
  MOEJIT_DEVICE static void run(const ExpertScalesParams& params) {
    if (has_other_tokens(params.call)) return;
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    const int32_t group = ptx::cta_index();
    const Magnitudes magnitudes = Groups::of(params, group);
    const auto from = ptx::global(params.amax) + magnitudes.first;
    float own = 0.0f;
#pragma unroll 8
    for (int64_t i = ptx::thread_index(); i < magnitudes.count; i += kThreads) {
      own = ptx::max_number(own, ptx::load(from + i));
    }
    const float amax = max_of_cta<kWarps>(ptx::shared<float>(0), own);
    if (ptx::thread_index() != 0) return;
    const float scale = scale_from_amax<kMaxBits, kPowerOfTwo>(amax);
    ptx::store(ptx::global(params.scale) + group, scale);
    ptx::store(ptx::global(params.scale_inv) + group, ptx::reciprocal(scale));
  }
};

}  // namespace moejit::device
