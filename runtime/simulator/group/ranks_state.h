// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/cta_knowledge.h"
#include "runtime/simulator/group/flags.h"
#include "runtime/simulator/group/peer_stores.h"
#include "runtime/simulator/group/symmetric_memory.h"
#include "runtime/simulator/group/virtual_time.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::runtime {

// What all ranks of a group share while they run. One host thread at a time uses it.
struct RanksState {
  std::unique_ptr<SymmetricMemory> memory;
  Flags flags;
  VirtualTime time;
  std::vector<CtaRun> runs{1};  // the first is nobody's

  // Lets a store to a peer's memory arrive.
  void land(const PeerStore& store);
};

// A thread that waits for a flag, or for time.
struct FlagWait {
  uintptr_t flag = 0;  // 0: only time is waited for
  uint32_t wanted = 0;
  uint32_t seen = 0;
  uint64_t deadline = 0;  // 0: none
  bool is_poll = false;   // whether the kernel itself reads the flag again and again
};

// What a thread read last, to tell when it reads the same again and again.
struct LastPoll {
  uintptr_t flag = 0;
  uint32_t value = 0;
  uint64_t time = 0;
  int32_t times = 0;       // that the flag had this value
  int32_t time_reads = 0;  // that the time was the same
  bool reads_time = false;
};

// What CTAs that cannot go on wait for, together.
struct WaitSummary {
  uint64_t deadline = 0;    // the earliest; 0: none
  bool has_poll = false;    // whether a kernel itself reads something again and again
  bool reads_time = false;  // whether such a kernel looks at the timer too
};

// The part of a CTA that concerns other ranks.
struct RankCta {
  RankCta(RanksState& group_, int32_t rank_, CtaKnowledge knowledge_, int32_t threads,
          uint32_t pause_odds_)
      : group(group_),
        rank(rank_),
        knowledge(std::move(knowledge_)),
        pause_odds(pause_odds_),
        waits(static_cast<std::size_t>(threads)),
        polls(static_cast<std::size_t>(threads)),
        fenced(static_cast<std::size_t>(threads)) {}

  RanksState& group;
  int32_t rank;
  CtaKnowledge knowledge;
  uint32_t pause_odds;    // the CTA is set aside at one in so many accesses; 0: seldom
  uint32_t accesses = 0;  // since it was set aside
  PeerStores stores;
  std::vector<FlagWait> waits;                            // by threads
  std::vector<LastPoll> polls;                            // by threads
  std::vector<std::shared_ptr<const WorldClock>> fenced;  // by threads: at their last fence
};

}  // namespace moejit::runtime
