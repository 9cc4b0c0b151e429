// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/group/world_clock.h"
#include "runtime/simulator/ordering.h"

#include <memory>
#include <vector>

namespace moejit::runtime {

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
