// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies the scales of one operand of fc1 and one of fc2 out of their states, and inverts them. The
// state may change while codes that were made with a scale are still in use; the copy does not.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/take_scales.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kExperts = 8;
//   constexpr int32_t kStride = 3;
//   constexpr int32_t kFirst = 0;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = TakeScales<kExperts, kStride, kFirst, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_take_scales_..., TakeScalesParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/take_scales_params.h"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// Expert e has the column e * kStride + kFirst of both states.
template <int32_t kExperts, int32_t kStride, int32_t kFirst, int32_t kThreads_>
struct TakeScales {
  static_assert(0 <= kFirst && kFirst < kStride, "an expert has kStride columns");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 0;

  // A thread for each expert.
  MOEJIT_DEVICE static void run(const TakeScalesParams& params) {
    if (has_other_tokens(params.call)) return;
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    const int32_t expert = ptx::cta_index() * kThreads + ptx::thread_index();
    if (expert >= kExperts) return;
    take(params.fc1_stored, params.fc1_scale, params.fc1_scale_inv, expert);
    take(params.fc2_stored, params.fc2_scale, params.fc2_scale_inv, expert);
  }

 private:
  // Does nothing where the operand is not cast.
  MOEJIT_DEVICE static void take(const float* stored, float* scale, float* scale_inv,
                                 int32_t expert) {
    if (scale == nullptr) return;
    const float value = ptx::load(ptx::global(stored) + (expert * kStride + kFirst));
    ptx::store(ptx::global(scale) + expert, value);
    ptx::store(ptx::global(scale_inv) + expert, ptx::reciprocal(value));
  }
};

}  // namespace moejit::device
