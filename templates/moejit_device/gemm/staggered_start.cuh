// SPDX-License-Identifier: Apache-2.0
#pragma once

// A scheduler whose CTAs do not start together. Where tiles are long and their sums are added to
// memory, CTAs that started together also end their tiles together: old values then come in bursts,
// during which, it seems, operands come late. Spread over the time of a tile, they come evenly.
//
// CTAs whose tiles lie below each other share B and start together, so that their requests for the
// same lines still meet on their way to L2. When a CTA starts changes no result.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/clock.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Gives the tiles of Scheduler, which has bands of kBandTiles, in its order. CTAs get their first
// one at kStartTimes times, spread over what a tile of the mean group takes.
template <typename Problem, typename Scheduler, int32_t kStartTimes, int32_t kBandTiles = 16>
class StaggeredStart : public Scheduler {
  static_assert(kStartTimes > 1, "CTAs that start together wait for nothing");
  // Approximates what a step takes, 128 x 192 x 128 in e4m3: shared memory moves 104 KiB meanwhile.
  static constexpr int32_t kStepCycles = 832;

 public:
  template <typename Params>
  MOEJIT_DEVICE explicit StaggeredStart(const Params& params)
      : Scheduler(params), start_(ptx::sm_clock() + delay(params)) {}

  // Returns this CTA's next tile, as Scheduler does, once it is this CTA's time to start.
  MOEJIT_DEVICE GemmTile next() {
    const GemmTile tile = Scheduler::next();
    while (ptx::sm_clock() < start_) {
    }
    return tile;
  }

 private:
  // Returns this CTA's delay in cycles.
  template <typename Params>
  MOEJIT_DEVICE static uint64_t delay(const Params& params) {
    const int32_t columns = ptx::load(ptx::global(params.offs) + Problem::kGroups);
    const int32_t mean_steps = columns / (Problem::kGroups * Problem::kStepElements);
    const int32_t turn = ptx::cta_index() / kBandTiles % kStartTimes;
    return static_cast<uint64_t>(turn) *
           static_cast<uint64_t>(mean_steps * (kStepCycles / kStartTimes));
  }

  uint64_t start_;  // on this SM's clock
};

}  // namespace moejit::device
