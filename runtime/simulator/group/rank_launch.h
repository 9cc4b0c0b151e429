// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/group/world_clock.h"
#include "runtime/simulator/prepared_launch.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moejit::runtime {

// A place in the streams of all ranks where they meet. None goes on before all have come, and each
// then knows what all did before. An abandoned meeting holds nobody up.
class Meeting {
 public:
  // `work` is done once, when all ranks have come, and never if it is abandoned before.
  Meeting(int32_t ranks, std::string name, std::function<void()> work)
      : ranks_(ranks), name_(std::move(name)), work_(std::move(work)) {}

  const std::string& name() const { return name_; }
  bool is_over() const { return come_ == ranks_ || is_abandoned_; }
  bool is_abandoned() const { return is_abandoned_; }
  void abandon() { is_abandoned_ = come_ != ranks_; }
  // What all ranks know, once it is over.
  const WorldClock& clock() const { return clock_; }

  // Records that a rank has arrived, and adds what it knows.
  void come(const WorldClock& known) {
    clock_.join(known);
    if (++come_ == ranks_ && !is_abandoned_) work_();
  }

 private:
  int32_t ranks_;
  int32_t come_ = 0;
  bool is_abandoned_ = false;
  std::string name_;
  std::function<void()> work_;
  WorldClock clock_;
};

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
