// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/world_clock.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace moejit::runtime {

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

}  // namespace moejit::runtime
