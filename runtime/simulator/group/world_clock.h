// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"
#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/ordering.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moejit::runtime {

// A CTA of one launch of a group's rank.
struct CtaRun {
  int32_t stream = 0;     // number of the stream, counted over all ranks
  uint32_t position = 0;  // place of the launch in its stream
  int32_t rank = 0;
  int32_t cta = 0;
  std::string kernel;
};

// An access to memory of the group. `run` is the CTA's index in the list of all runs. 0 is the host
// or nobody, with whom everything is ordered.
struct AccessRecord {
  Stamp stamp = 0;
  sim::Site site{};
  uint32_t run = 0;
  uint8_t bytes = 0;        // mask of the bytes of a word
  bool is_several = false;  // several CTAs wrote bytes of the word, so none can be named
};

// The accesses of all ranks' CTAs that are ordered before a moment: whole launches, by streams, and
// parts of CTAs that run.
class WorldClock {
 public:
  // Returns whether an access of a run is before this moment.
  bool covers(const CtaRun& run, const AccessRecord& past) const;

  // Returns whether an access of a run for which `is_meant` is true is before this moment; 0 stands
  // for any access.
  template <typename IsMeant>
  bool covers_any(IsMeant is_meant, Stamp past) const {
    return std::ranges::any_of(runs_, [&](const Known& known) {
      return is_meant(known.run) && (past == 0 || known.clock.covers(past));
    });
  }

  void join(const WorldClock& other);
  // Adds what the clock of a CTA says about its own threads.
  void add_run(uint32_t run, const Clock& clock);
  // Adds all launches of a stream before a position.
  void add_launches(int32_t stream, uint32_t before);
  // Drops knowledge of CTAs whose whole launches are known.
  void prune(const std::vector<CtaRun>& runs);

 private:
  struct Known {
    uint32_t run = 0;
    Clock clock;
  };
  bool knows_launch(const CtaRun& run) const;

  std::vector<uint32_t> launches_;  // by streams: all before this position
  std::vector<Known> runs_;         // ascending
};

// What the threads of one CTA know of others: what was ordered before its launch, and what they
// have acquired since. An acquisition is an event of one thread; threads that a barrier orders
// behind the event know it as well.
class CtaKnowledge : public KnownCtas {
 public:
  CtaKnowledge(const std::vector<CtaRun>& runs, uint32_t run,
               std::shared_ptr<const WorldClock> base)
      : runs_(runs), run_(run), base_(std::move(base)) {}

  uint32_t run() const { return run_; }
  // Return whether an access is ordered before what the actor does now, and before the copies of
  // global memory that it starts now. Such copies do not see by themselves what a thread has
  // acquired.
  bool knows(const AccessRecord& past, const Actor& now) const;
  bool knows_for_copies(const AccessRecord& past, const Actor& now) const;
  bool knows_cta(uint32_t hash, Stamp past, const Actor& now) const override;
  // Adds what the actor learned from a flag.
  void acquire(const Actor& now, const WorldClock& told);
  // Orders what the actor has acquired before copies that start after this call.
  void fence_copies(const Actor& now);
  // Returns what the actor knows; `own` are the accesses of this CTA.
  std::shared_ptr<const WorldClock> release(const Actor& now, const Clock& own) const;
  // Adds what all threads know at the end of the CTA.
  void add_all_to(WorldClock& clock) const;

 private:
  struct Learned {
    Stamp at = 0;
    WorldClock clock;
    std::vector<Stamp> fences;  // for copies, behind the acquisition
  };
  // Returns whether an access is known from before the launch or by an acquisition of which
  // is_ordered(learned) is true.
  template <typename IsOrdered>
  bool knows_if(const AccessRecord& past, const Actor& now, IsOrdered is_ordered) const;

  const std::vector<CtaRun>& runs_;
  uint32_t run_;
  std::shared_ptr<const WorldClock> base_;
  std::vector<Learned> learned_;  // in the order of time
};

}  // namespace moejit::runtime
