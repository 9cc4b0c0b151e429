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
  Clock start;
  for (int32_t warp = 0; warp < kMaxWarps; ++warp) start.add_warp(warp, 1);
  const SharedClock of_all(start);
  for (Warp& warp : warps_) {
    warp.clock = of_all;
    warp.acquired.reset();
    warp.epoch = 1;
    warp.whole_epoch = 0;
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
  if ((warp.own & lane_bit(thread)) == 0) return {make_stamp(thread, warp.epoch), &*warp.clock};
  const Lane& lane = lanes_[static_cast<std::size_t>(thread)];
  return {make_stamp(thread, lane.epoch), &*lane.clock};
}

Actor Ordering::whole_warp(int32_t thread) {
  Actor now = actor(thread);
  uint32_t& latest = warps_[warp_index(thread)].whole_epoch;
  latest = std::max(latest, epoch_of(now.stamp));
  now.stamp |= kWholeWarp;
  return now;
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
  joined.join(*warp.clock);
  if (warp.own == 0) return;
  fenced = UINT32_MAX;
  const SharedClock* joined_last = &warp.clock;
  for_bits(warp.lanes, [&](int32_t lane) {
    const int32_t thread = index * sim::kWarpLanes + lane;
    if ((warp.own >> lane & 1u) == 0) {
      fenced = std::min(fenced, warp.clock->fenced_of(thread));
      return;
    }
    const Lane& own = lanes_[static_cast<std::size_t>(thread)];
    if (own.clock != *joined_last) joined.join(*own.clock);
    joined_last = &own.clock;
    epoch = std::max(epoch, own.epoch);
    fenced = std::min(fenced, own.clock->fenced_of(thread));
  });
}

void Ordering::join(uint32_t warps) {
  Clock joined;
  for_bits(warps, [&](int32_t index) {
    Warp& warp = warps_[static_cast<std::size_t>(index)];
    uint32_t epoch = 0;
    uint32_t fenced = 0;
    gather(index, joined, epoch, fenced);
    warp.epoch = epoch + 1;
    warp.own = 0;
    ++warp.changes;
    joined.add_warp(index, epoch + 1);
    joined.add_fenced_warp(index, fenced);
  });
  joined.compact();
  const SharedClock of_all(joined);
  for_bits(warps, [&](int32_t index) { warps_[static_cast<std::size_t>(index)].clock = of_all; });
}

void Ordering::release(int32_t thread, Clock& clock) {
  Lane& lane = own_lane(thread);
  lane.clock.own().add_thread(thread, ++lane.epoch);
  clock.join(*lane.clock);
}

void Ordering::acquire(int32_t thread, const Clock& clock, uint64_t version) {
  Lane& lane = own_lane(thread);
  if (!lane.clock.is_shared()) {
    lane.clock.own().join(clock);
    return;
  }
  std::optional<Acquired>& last = warps_[warp_index(thread)].acquired;
  if (!last || last->version != version || last->before != lane.clock) {
    SharedClock after = lane.clock;
    after.own().join(clock);
    last = Acquired{lane.clock, version, after};
  }
  lane.clock = last->after;
}

// Fences a thread's accesses. A lane that has arrived by itself is epochs ahead, and may have
// stamped a store of the whole warp. So the fence gets a later epoch than that stamp, too. So lanes
// that fence one after the other get the same epoch, and one number holds it for the warp.
void Ordering::fence_async(int32_t thread) {
  Lane& lane = own_lane(thread);
  lane.epoch = std::max(lane.epoch, warps_[warp_index(thread)].whole_epoch) + 1;
  lane.clock.own().add_fenced_thread(thread, lane.epoch);
}

void Ordering::learn(int32_t thread, int32_t agent, uint32_t before) {
  own_lane(thread).clock.own().add_agent(agent, before);
}

void Ordering::learn_in_warp(int32_t index, int32_t agent, uint32_t before) {
  Warp& warp = warps_[static_cast<std::size_t>(index)];
  ++warp.changes;
  if (warp.own == 0) {
    warp.clock.own().add_agent(agent, before);
    return;
  }
  SharedClock last = warp.clock;
  warp.clock.own().add_agent(agent, before);
  SharedClock last_learned = warp.clock;
  for_bits(warp.own, [&](int32_t lane) {
    SharedClock& clock = lanes_[static_cast<std::size_t>(index * sim::kWarpLanes + lane)].clock;
    if (clock != last) {
      last = last_learned = clock;
      last_learned.own().add_agent(agent, before);
    }
    clock = last_learned;
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
  const SharedClock* last = nullptr;
  const auto add = [&](const SharedClock& clock) {
    if (last == nullptr) {
      common.clock = *clock;
    } else if (clock != *last) {
      common.clock.meet(*clock);
    }
    last = &clock;
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
