// SPDX-License-Identifier: Apache-2.0
#pragma once

// What stores that cast do with the largest magnitudes of the rows of each expert: nothing, or they
// raise columns of a state to them, from which the scales of later steps follow
// (cast/update_scales.cuh).
//
// Many rows have one expert, and columns of a state lie side by side, so that an atomic on device
// memory for each segment would queue up at a few words. A CTA keeps the maxima of all experts in
// shared memory and raises the columns once, at its end. Magnitudes are ordered like their bits,
// and a maximum is the same in any order.

#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

struct AmaxIsDropped {
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void begin() {}
  template <typename Segment>
  MOEJIT_DEVICE static float of_segment(const Segment&) {
    return 0.0f;
  }
  MOEJIT_DEVICE static void raise(int32_t, float) {}
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

// Expert e has column e * kStride + kFirst of amax.
template <int32_t kLocalExperts, int32_t kStride, int32_t kFirst>
struct AmaxIsRecorded {
  static_assert(0 <= kFirst && kFirst < kStride, "an expert has kStride columns");

  static constexpr int32_t kSharedBytes = 4 * kLocalExperts;

  // Is called by all threads, before the first raise().
  MOEJIT_DEVICE static void begin() {
    for (int32_t e = ptx::thread_index(); e < kLocalExperts; e += ptx::thread_count()) {
      ptx::store(slot(e), 0u);
    }
    // Orders the zeros before the first raise.
    ptx::sync_cta();
  }
  // Returns the largest magnitude of a segment in all of its lanes. Is called by whole warps.
  template <typename Segment>
  MOEJIT_DEVICE static float of_segment(const Segment& segment) {
    return max_of_segment(magnitude_of_lane(segment));
  }
  MOEJIT_DEVICE static void raise(int32_t expert, float amax) {
    if (amax > 0.0f) ptx::atomic_max(slot(expert), ptx::bits_of(amax));
  }
  // Is called by all threads, behind the last raise().
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    // Orders the raises before the reads of the maxima.
    ptx::sync_cta();
    const auto amax = ptx::as<uint32_t>(ptx::global(params.amax));
    for (int32_t e = ptx::thread_index(); e < kLocalExperts; e += ptx::thread_count()) {
      const uint32_t bits = ptx::load(slot(e));
      if (bits != 0u) ptx::atomic_max(amax + (int64_t{e} * kStride + kFirst), bits);
    }
  }

 private:
  MOEJIT_DEVICE static ptx::SharedPtr<uint32_t> slot(int32_t expert) {
    return ptx::shared<uint32_t>(0) + expert;
  }
};

}  // namespace moejit::device
