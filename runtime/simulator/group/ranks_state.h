// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/symmetric_memory.h"
#include "runtime/simulator/group/world_clock.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace moejit::runtime {

// The time of a group in nanoseconds. It stands still while anybody can go on, so that a rank that
// is merely slow is never late. When nobody can, it goes to the earliest deadline that a waiting
// thread has named. Where threads only look at the timer, it goes in steps that double until
// something happens.
class VirtualTime {
 public:
  uint64_t now() const { return now_; }
  // Passes until `deadline`. Where threads look at the timer it passes by a step, but not beyond
  // the deadline (0: none). Returns false once nothing has happened for an hour.
  bool pass(uint64_t deadline, bool by_step) {
    if (now_ - last_event_ > kLongest) return false;
    const uint64_t next = by_step ? now_ + step_ : deadline;
    if (by_step) step_ *= 2;
    now_ = std::max(now_, deadline == 0 ? next : std::min(next, deadline));
    return true;
  }
  void something_happened() {
    step_ = kShortestStep;
    last_event_ = now_;
  }

 private:
  static constexpr uint64_t kShortestStep = 1000;
  static constexpr uint64_t kLongest = 3'600'000'000'000;
  uint64_t now_ = 1'000'000'000;
  uint64_t last_event_ = now_;
  uint64_t step_ = kShortestStep;
};

class Cta;

// The words by which ranks signal each other, and the threads that wait for a change of them.
class Flags {
 public:
  // What the last store to a word released; nothing if it was no release.
  struct Told {
    std::shared_ptr<const WorldClock> clock;
    AccessRecord writer;
  };

  // Returns what a word released; null if the last store to it was no flag store of a rank.
  const Told* find(uintptr_t word) const;
  void tell(uintptr_t word, Told told) { told_[word] = std::move(told); }
  // Forgets words that were written by other stores than flag stores.
  void forget(uintptr_t address, uint64_t bytes);

  // Adds a thread that waits until a word changes; address 0: until time goes on.
  void add_waiter(uintptr_t word, Cta& cta, int32_t thread) {
    waiters_.push_back({word, &cta, thread});
  }
  // Wakes the threads that wait for these bytes.
  void changed(uintptr_t address, uint64_t bytes);
  void wake_all();
  void drop_waiters() { waiters_.clear(); }

  // Counts changes of memory that waits may depend on.
  uint64_t changes() const { return changes_; }
  void count_change() { ++changes_; }

 private:
  struct Waiter {
    uintptr_t word = 0;
    Cta* cta = nullptr;
    int32_t thread = 0;
  };
  template <typename IsWanted>
  void wake_if(IsWanted is_wanted);

  std::unordered_map<uintptr_t, Told> told_;
  std::vector<Waiter> waiters_;
  uint64_t changes_ = 0;
};

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
