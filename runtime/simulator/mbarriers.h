// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/ordering.h"

#include <cstdint>
#include <vector>

namespace moejit::runtime {

// The thread that started the last copy which completes on an mbarrier.
struct CopyOrigin {
  int32_t thread = 0;
  sim::Site site{};
};

// A counter in shared memory (PTX: "mbarrier"). A phase is complete when no arrivals and no bytes
// are pending. Tensor copies may land before the arrival that announces them; then `bytes` is
// negative.
struct Mbarrier {
  uint32_t offset = 0;
  int32_t arrivals = 0;  // of a phase
  int32_t pending = 0;   // of the current phase
  int64_t bytes = 0;     // announced and not copied, in the current phase
  uint32_t phase = 0;    // the current one; earlier ones are complete
  Stamp initialised = 0;
  sim::Site init_site{};
  bool is_visible_to_copies = false;
  int32_t agent = 0;            // agent of the copies that complete here; its epochs are phases
  int64_t bytes_under_way = 0;  // of copies that were started and have not landed
  CopyOrigin last_copy;
  uint32_t copied_phases = 0;  // phases up to the last that had copies, or 0
  uint32_t waited_phases = 0;  // phases up to the last that somebody waited for
  Clock arriving;              // knowledge from arrivals of the current phase
  Clock completed;             // knowledge from arrivals of earlier phases
  std::vector<int32_t> waiters;
};

// The mbarriers of a CTA by their offset in shared memory.
class Mbarriers {
 public:
  void reset(uint32_t shared_bytes) {
    numbers_.assign(shared_bytes / 8, kNone);
    all_.clear();
  }
  // Returns the mbarrier at `offset`, which is a multiple of 8 and inside, or null.
  Mbarrier* find(uint32_t offset) {
    const uint16_t number = numbers_[offset / 8];
    return number == kNone ? nullptr : &all_[number];
  }
  Mbarrier& add(uint32_t offset) {
    numbers_[offset / 8] = static_cast<uint16_t>(all_.size());
    return all_.emplace_back();
  }
  // Returns the index of a barrier from find(), which stays the same when others are added.
  int32_t index_of(const Mbarrier& barrier) const {
    return static_cast<int32_t>(&barrier - all_.data());
  }
  Mbarrier& operator[](int32_t index) { return all_[static_cast<std::size_t>(index)]; }
  const Mbarrier& operator[](int32_t index) const { return all_[static_cast<std::size_t>(index)]; }
  std::vector<Mbarrier>& all() { return all_; }

 private:
  static constexpr uint16_t kNone = UINT16_MAX;
  std::vector<uint16_t> numbers_;
  std::vector<Mbarrier> all_;
};

}  // namespace moejit::runtime
