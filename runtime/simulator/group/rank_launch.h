// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/meeting.h"
#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/prepared_launch.h"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace moejit::runtime {

// The SMs of a rank are shared out in parts, of which a CTA takes one in so many.
inline constexpr int32_t kSmParts = 1 << 20;

// A launch of a rank, from being enqueued to its end.
struct RankLaunch {
  std::shared_ptr<const KernelImage> image;
  std::unique_ptr<PreparedLaunch> prepared;
  uint64_t serial = 0;         // counts the launches of the group
  int32_t sm_parts = 0;        // that a CTA, or cluster, takes
  std::vector<int32_t> order;  // first CTAs of clusters, as they are placed
  std::size_t placed = 0;
  std::size_t ended = 0;
  std::shared_ptr<const WorldClock> base;  // what is ordered before; set at the start
  WorldClock end;                          // what is ordered before the end
  PeerStores late;                         // stores of CTAs that have ended

  bool has_started() const { return base != nullptr; }
  bool is_over() const { return ended == order.size() && late.is_empty(); }
};

// Something enqueued on a stream: a launch, work of the simulator itself, or a meeting of all
// ranks.
struct StreamItem {
  std::unique_ptr<RankLaunch> launch;
  std::function<void()> work;
  std::shared_ptr<Meeting> meeting = {};
  bool has_come = false;                   // to the meeting
  std::shared_ptr<const WorldClock> host;  // what the host knew
};

// A stream of a rank. `index` counts streams over all ranks.
struct RankStream {
  int32_t rank = 0;
  int32_t index = 0;
  void* handle = nullptr;
  uint32_t position = 0;  // of the first item
  WorldClock clock;       // what is ordered before the first item
  std::deque<StreamItem> items;
};

// Returns how many parts of the SMs a CTA, or a cluster, of a launch takes.
int32_t sm_parts_of(const Launch& launch);

}  // namespace moejit::runtime
