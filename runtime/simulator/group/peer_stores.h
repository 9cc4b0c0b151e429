// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"
#include "runtime/simulator/random.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::runtime {

// A store of at most 16 bytes to a peer's memory that is on its way.
struct PeerStore {
  uintptr_t address = 0;
  uint32_t bytes = 0;
  Stamp stamp = 0;
  alignas(16) std::byte value[16]{};
};

// The stores of a CTA to memory of peers. They arrive there late and in any order, until a fence or
// a release orders them. Stores to the same bytes stay in order. `land` is called with each store
// that arrives.
class PeerStores {
 public:
  static constexpr std::size_t kMost = 48;

  bool is_empty() const { return stores_.empty(); }
  // Returns where to write the value of a new store; valid until the next call. Older stores to
  // the same bytes arrive first, and one at random where there are too many.
  template <typename Land>
  std::byte* add(uintptr_t address, uint32_t bytes, Stamp stamp, Random& random, Land land) {
    land_overlapping(address, bytes, land);
    if (stores_.size() >= kMost) land_one(random, land);
    stores_.push_back({address, bytes, stamp, {}});
    return stores_.back().value;
  }
  template <typename Land>
  void land_overlapping(uintptr_t address, uint32_t bytes, Land land) {
    land_if(
        [&](const PeerStore& store) {
          return store.address < address + bytes && address < store.address + store.bytes;
        },
        land);
  }
  template <typename Land>
  void land_one(Random& random, Land land) {
    if (stores_.empty()) return;
    std::swap(stores_[random.below(static_cast<uint32_t>(stores_.size()))], stores_.back());
    const PeerStore store = stores_.back();
    stores_.pop_back();
    land(store);
  }
  // Lands the stores for which `is_wanted` is true; they have no overlap.
  template <typename IsWanted, typename Land>
  void land_if(IsWanted is_wanted, Land land) {
    for (std::size_t i = 0; i < stores_.size();) {
      if (!is_wanted(stores_[i])) {
        ++i;
        continue;
      }
      const PeerStore store = stores_[i];
      stores_[i] = stores_.back();
      stores_.pop_back();
      land(store);
    }
  }

  // Takes over the stores of a CTA that has ended.
  void take_from(PeerStores& other) {
    stores_.insert(stores_.end(), other.stores_.begin(), other.stores_.end());
    other.stores_.clear();
  }

 private:
  std::vector<PeerStore> stores_;
};

}  // namespace moejit::runtime
