// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace moejit::runtime {

// An actor, and what is ordered before its next access.
struct Actor {
  Stamp stamp = 0;
  const Clock* clock = nullptr;

  bool is_after(Stamp past) const { return same_actor(past, stamp) || clock->covers(past); }
};

// Tracks which memory accesses of a CTA are ordered before which. All lanes of a warp share one
// clock. A lane that learns or tells something by itself (mbarriers, fences) has its own clock from
// then on until the next barrier of the warp. Each barrier begins a new epoch of the warps that
// take part, each arrival and fence one of its thread. Shuffles, votes and matrix instructions
// order no memory, as on the hardware.
class Ordering {
 public:
  void reset(int32_t threads);

  Actor actor(int32_t thread) const;
  // Returns the actor of an access by all lanes of the thread's warp.
  Actor whole_warp(int32_t thread);

  // Joins the warps in the mask at a barrier.
  void join(uint32_t warps);

  // Release to and acquire from an mbarrier. release() adds what a thread did until now to `clock`;
  // acquire() orders what `clock` holds before what the thread does from now on. No two clocks that
  // differ may have the same version between two resets.
  void release(int32_t thread, Clock& clock);
  void acquire(int32_t thread, const Clock& clock, uint64_t version);

  // Orders the thread's ordinary accesses until now with the async proxy.
  void fence_async(int32_t thread);

  // Adds an agent and returns its number, from 0 on.
  int32_t add_agent() { return agents_++; }
  static Stamp agent_stamp(int32_t agent, uint32_t epoch) {
    return make_stamp(kFirstAgent + agent, epoch);
  }
  // Put what an agent did in epochs below `before` ahead of all further accesses: of one thread, or
  // of all lanes of a warp.
  void learn(int32_t thread, int32_t agent, uint32_t before);
  void learn_in_warp(int32_t warp, int32_t agent, uint32_t before);

  // Returns the clock of what is before all threads of a warpgroup; valid until the next call for
  // the same warpgroup.
  const Clock& common(int32_t warpgroup);

 private:
  struct Lane {
    SharedClock clock;
    uint32_t epoch = 1;
  };
  // The last acquisition by a lane that shared its clock; the other lanes get the same result.
  struct Acquired {
    SharedClock before;
    uint64_t version = 0;
    SharedClock after;
  };
  struct Warp {
    SharedClock clock;
    std::optional<Acquired> acquired;
    uint32_t epoch = 1;
    uint32_t whole_epoch = 0;  // the latest of an access by the whole warp
    uint32_t own = 0;          // lanes with a clock of their own
    uint32_t lanes = 0;        // lanes that exist
    uint64_t changes = 0;      // counts changes of any clock of the warp
  };
  struct Common {
    Clock clock;
    uint64_t changes = 0;  // changes of the warps when the clock was made
  };

  Lane& own_lane(int32_t thread);
  void gather(int32_t warp, Clock& joined, uint32_t& epoch, uint32_t& fenced) const;

  std::vector<Lane> lanes_;
  std::array<Warp, kMaxWarps> warps_;
  std::array<Common, kMaxWarps / 4> common_;
  int32_t agents_ = 0;
};

}  // namespace moejit::runtime
