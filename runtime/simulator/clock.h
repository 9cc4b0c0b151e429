// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/fibers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::runtime {

// An accessor of memory, and a time; 0 is nobody. Bits 0 to 31 hold the epoch, bits from 32 on the
// actor. An actor is a thread, or from kFirstAgent on an agent: hardware that works by itself and
// whose epochs number its steps. kWholeWarp marks an access by all lanes of the thread's warp, with
// which no single lane is ordered.
using Stamp = uint64_t;
inline constexpr int32_t kFirstAgent = StackSlab::kMaxThreads;
inline constexpr Stamp kWholeWarp = Stamp{1} << 63;

inline constexpr Stamp make_stamp(int32_t actor, uint32_t epoch) {
  return static_cast<Stamp>(actor) << 32 | epoch;
}
inline constexpr int32_t actor_of(Stamp stamp) {
  return static_cast<int32_t>(stamp >> 32 & 0xffffu);
}
inline constexpr uint32_t epoch_of(Stamp stamp) { return static_cast<uint32_t>(stamp); }
inline constexpr bool is_agent(Stamp stamp) { return actor_of(stamp) >= kFirstAgent; }
inline constexpr bool same_actor(Stamp a, Stamp b) {
  return (a ^ b) >> 32 == 0 && (a & kWholeWarp) == 0;
}

// The accesses that are ordered before a moment. Barriers order whole warps, so one number
// describes most warps: their accesses of earlier epochs. An arrival at an mbarrier, or a proxy
// fence, concerns one lane alone; such lanes are listed in addition.
class Clock {
 public:
  void clear();

  // Returns whether an access is before this moment.
  bool covers(Stamp past) const;
  // Returns whether the thread that made an ordinary access fenced it for the async proxy before
  // this moment.
  bool covers_fenced(Stamp past) const;

  // join() adds what the other clock knows; meet() keeps only what both know.
  void join(const Clock& other);
  void meet(const Clock& other);

  // Add the accesses of a warp, a thread or an agent before epoch `before`.
  void add_warp(int32_t warp, uint32_t before);
  void add_thread(int32_t thread, uint32_t before);
  void add_agent(int32_t agent, uint32_t before);
  // Add the fenced accesses before an epoch.
  void add_fenced_warp(int32_t warp, uint32_t before);
  void add_fenced_thread(int32_t thread, uint32_t before);

  uint32_t fenced_of(int32_t thread) const;
  // Replaces entries of all 32 lanes of a warp by one for the warp, and drops duplicates.
  void compact();

 private:
  struct Ahead {
    int32_t thread = 0;
    uint32_t before = 0;
    uint32_t fenced = 0;

    void join(const Ahead& other) {
      before = std::max(before, other.before);
      fenced = std::max(fenced, other.fenced);
    }
  };
  const Ahead* find(int32_t thread) const;
  Ahead& entry(int32_t thread);
  void list_all_of(const Clock& other);
  void prune();

  std::array<uint32_t, kMaxWarps> warps_{};
  std::array<uint32_t, kMaxWarps> fenced_{};
  std::vector<uint32_t> agents_;
  std::vector<Ahead> ahead_;  // ascending threads
};

// A clock that others may hold too: a copy is the same clock until either changes it. Lanes of a
// warp mostly learn the same, and so need one clock and one computation.
class SharedClock {
 public:
  SharedClock() : clock_(std::make_shared<Clock>()) {}
  explicit SharedClock(const Clock& clock) : clock_(std::make_shared<Clock>(clock)) {}

  const Clock& operator*() const { return *clock_; }
  const Clock* operator->() const { return clock_.get(); }
  // Returns the clock to change, which nobody else holds from then on.
  Clock& own() {
    if (is_shared()) clock_ = std::make_shared<Clock>(*clock_);
    return *clock_;
  }
  bool is_shared() const { return clock_.use_count() > 1; }
  // Equal are two that hold the same clock object, not two whose clocks know the same.
  bool operator==(const SharedClock&) const = default;

 private:
  std::shared_ptr<Clock> clock_;
};

}  // namespace moejit::runtime
