// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"

#include <algorithm>
#include <cstdint>
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

}  // namespace moejit::runtime
