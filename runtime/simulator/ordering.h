// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/fibers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace moejit::runtime {

// Which memory accesses of a CTA are ordered before which: a vector clock per warp. That is exact,
// because every barrier orders whole warps (bar.sync is executed by all lanes of a warp, and
// sync_warp is the barrier of one warp). Each barrier that a warp takes part in begins a new epoch
// of the warp. Shuffles, votes and matrix instructions order no memory, as on the hardware.

// Who accessed memory, and when: thread in bits 21 to 30, epoch of its warp below; 0 is nobody.
// Bit 31 marks an access by all lanes of the thread's warp, which no single lane is ordered with.
using Stamp = uint32_t;
inline constexpr int32_t kEpochBits = 21;
inline constexpr Stamp kEpochMask = (1u << kEpochBits) - 1;
inline constexpr Stamp kWholeWarp = 1u << 31;

inline constexpr int32_t thread_of(Stamp stamp) {
  return static_cast<int32_t>(stamp >> kEpochBits & 1023u);
}
inline constexpr uint32_t epoch_of(Stamp stamp) { return stamp & kEpochMask; }
inline constexpr bool same_actor(Stamp a, Stamp b) { return (a ^ b) >> kEpochBits == 0; }

class Ordering {
 public:
  void reset() {
    for (auto& row : before_) row.fill(1);
    exhausted_ = false;
  }

  Stamp stamp(int32_t thread) const {
    const auto warp = static_cast<std::size_t>(thread / sim::kWarpLanes);
    return static_cast<Stamp>(thread) << kEpochBits | before_[warp][warp];
  }

  // Is the access `past` ordered before what `now` does at this moment?
  bool ordered(Stamp past, Stamp now) const {
    if (same_actor(past, now) || exhausted_) return true;
    const auto warp = static_cast<std::size_t>(thread_of(now) / sim::kWarpLanes);
    return epoch_of(past) < before_[warp][static_cast<std::size_t>(thread_of(past)) / 32];
  }

  // A barrier of the warps in the mask.
  void join(uint32_t warps) {
    std::array<uint32_t, kMaxWarps> joined{};
    for (uint32_t rest = warps; rest != 0; rest &= rest - 1) {
      const auto warp = static_cast<std::size_t>(std::countr_zero(rest));
      // Too many barriers for the stamps: from here on no race is reported in this CTA.
      if (++before_[warp][warp] == kEpochMask) exhausted_ = true;
      for (std::size_t i = 0; i < kMaxWarps; ++i) joined[i] = std::max(joined[i], before_[warp][i]);
    }
    for (uint32_t rest = warps; rest != 0; rest &= rest - 1) {
      before_[static_cast<std::size_t>(std::countr_zero(rest))] = joined;
    }
  }

 private:
  bool exhausted_ = false;
  // [w][v]: accesses of warp v in earlier epochs than this are ordered before warp w; [w][w] is
  // the present epoch of w.
  std::array<std::array<uint32_t, kMaxWarps>, kMaxWarps> before_{};
};

}  // namespace moejit::runtime
