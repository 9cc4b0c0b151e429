// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/ordering.h"

#include <algorithm>
#include <bit>

namespace moejit::runtime {
namespace {

std::size_t warp_index(int32_t thread) {
  return static_cast<std::size_t>(thread) / sim::kWarpLanes;
}

uint32_t lane_bit(int32_t thread) { return 1u << (thread % sim::kWarpLanes); }

template <typename Visit>
void for_bits(uint32_t bits, Visit visit) {
  for (; bits != 0; bits &= bits - 1) visit(std::countr_zero(bits));
}

}  // namespace

void Ordering::reset(int32_t threads) {
  if (lanes_.size() < static_cast<std::size_t>(threads)) {
    lanes_.resize(static_cast<std::size_t>(threads));
  }
  agents_ = 0;
  for (Warp& warp : warps_) {
    warp.clock.clear();
    for (int32_t other = 0; other < kMaxWarps; ++other) warp.clock.add_warp(other, 1);
    warp.epoch = 1;
    warp.own = 0;
    warp.lanes = 0;
    warp.changes = 1;
  }
  for (int32_t thread = 0; thread < threads; ++thread) {
    warps_[warp_index(thread)].lanes |= lane_bit(thread);
  }
  for (Common& common : common_) common.changes = 0;
}

Actor Ordering::actor(int32_t thread) const {
  const Warp& warp = warps_[warp_index(thread)];
  if ((warp.own & lane_bit(thread)) == 0) return {make_stamp(thread, warp.epoch), &warp.clock};
  const Lane& lane = lanes_[static_cast<std::size_t>(thread)];
  return {make_stamp(thread, lane.epoch), &lane.clock};
}

Ordering::Lane& Ordering::own_lane(int32_t thread) {
  Warp& warp = warps_[warp_index(thread)];
  Lane& lane = lanes_[static_cast<std::size_t>(thread)];
  if ((warp.own & lane_bit(thread)) == 0) {
    warp.own |= lane_bit(thread);
    lane.clock = warp.clock;
    lane.epoch = warp.epoch;
  }
  ++warp.changes;
  return lane;
}

// Adds to `joined` what a warp's lanes know. `epoch` becomes the latest of the lanes' epochs;
// accesses of epochs earlier than `fenced` are fenced, whichever lane made them.
void Ordering::gather(int32_t index, Clock& joined, uint32_t& epoch, uint32_t& fenced) const {
  const Warp& warp = warps_[static_cast<std::size_t>(index)];
  epoch = warp.epoch;
  fenced = 0;
  joined.join(warp.clock);
  if (warp.own == 0) return;
  fenced = UINT32_MAX;
  for_bits(warp.lanes, [&](int32_t lane) {
    const int32_t thread = index * sim::kWarpLanes + lane;
    if ((warp.own >> lane & 1u) == 0) {
      fenced = std::min(fenced, warp.clock.fenced_of(thread));
      return;
    }
    const Lane& own = lanes_[static_cast<std::size_t>(thread)];
    joined.join(own.clock);
    epoch = std::max(epoch, own.epoch);
    fenced = std::min(fenced, own.clock.fenced_of(thread));
  });
}

void Ordering::join(uint32_t warps) {
  joined_.clear();
  for_bits(warps, [&](int32_t index) {
    Warp& warp = warps_[static_cast<std::size_t>(index)];
    uint32_t epoch = 0;
    uint32_t fenced = 0;
    gather(index, joined_, epoch, fenced);
    warp.epoch = epoch + 1;
    warp.own = 0;
    ++warp.changes;
    joined_.add_warp(index, epoch + 1);
    joined_.add_fenced_warp(index, fenced);
  });
  joined_.compact();
  for_bits(warps, [&](int32_t index) { warps_[static_cast<std::size_t>(index)].clock = joined_; });
}

void Ordering::release(int32_t thread, Clock& clock) {
  Lane& lane = own_lane(thread);
  lane.clock.add_thread(thread, ++lane.epoch);
  clock.join(lane.clock);
}

void Ordering::acquire(int32_t thread, const Clock& clock) { own_lane(thread).clock.join(clock); }

// Fences a thread's accesses. A lane that has arrived by itself is epochs ahead of the others, and
// a store of the whole warp may have its epoch, so the fence gets a later epoch than any lane.
void Ordering::fence_async(int32_t thread) {
  Lane& lane = own_lane(thread);
  const auto index = static_cast<int32_t>(warp_index(thread));
  const Warp& warp = warps_[static_cast<std::size_t>(index)];
  lane.epoch = std::max(lane.epoch, warp.epoch);
  for_bits(warp.own, [&](int32_t other) {
    const auto& ahead = lanes_[static_cast<std::size_t>(index * sim::kWarpLanes + other)];
    lane.epoch = std::max(lane.epoch, ahead.epoch);
  });
  lane.clock.add_fenced_thread(thread, ++lane.epoch);
}

void Ordering::learn(int32_t thread, int32_t agent, uint32_t before) {
  own_lane(thread).clock.add_agent(agent, before);
}

void Ordering::learn_in_warp(int32_t index, int32_t agent, uint32_t before) {
  Warp& warp = warps_[static_cast<std::size_t>(index)];
  ++warp.changes;
  warp.clock.add_agent(agent, before);
  for_bits(warp.own, [&](int32_t lane) {
    const int32_t thread = index * sim::kWarpLanes + lane;
    lanes_[static_cast<std::size_t>(thread)].clock.add_agent(agent, before);
  });
}

const Clock& Ordering::common(int32_t warpgroup) {
  Common& common = common_[static_cast<std::size_t>(warpgroup)];
  uint64_t changes = 0;
  for (int32_t i = 0; i < 4; ++i) {
    changes += warps_[static_cast<std::size_t>(4 * warpgroup + i)].changes;
  }
  if (common.changes == changes) return common.clock;
  common.changes = changes;
  bool is_first = true;
  const auto add = [&](const Clock& clock) {
    if (is_first) {
      common.clock = clock;
    } else {
      common.clock.meet(clock);
    }
    is_first = false;
  };
  for (int32_t index = 4 * warpgroup; index < 4 * warpgroup + 4; ++index) {
    const Warp& warp = warps_[static_cast<std::size_t>(index)];
    if (warp.own != warp.lanes) add(warp.clock);
    for_bits(warp.own, [&](int32_t lane) {
      add(lanes_[static_cast<std::size_t>(index * sim::kWarpLanes + lane)].clock);
    });
  }
  return common.clock;
}

}  // namespace moejit::runtime
