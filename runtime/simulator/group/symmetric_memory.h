// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"
#include "runtime/simulator/fibers.h"
#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/group/world_clock.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

// Names a thread that accesses memory of the group, and what is ordered before the access.
struct Accessor {
  const CtaKnowledge& knowledge;
  Actor actor;
  sim::Site site{};
  bool is_copy = false;  // the tensor memory accelerator reads, for the thread that started it

  bool knows(const AccessRecord& past) const {
    return is_copy ? knowledge.knows_for_copies(past, actor) : knowledge.knows(past, actor);
  }
};

// A rule that an access to memory of the group breaks.
struct Trouble {
  enum class Kind {
    kUnwritten,  // nothing has written these bytes
    kStale,      // nothing has written them again since they expired
    kWritten,    // somebody wrote them, and nothing orders the two
    kRead,       // somebody read them, and nothing orders the two
    kNotFenced,  // somebody wrote them, and only ordinary reads are ordered behind it
  };
  Kind kind{};
  uintptr_t address = 0;  // of the byte or word
  AccessRecord other;
};

// The heaps of a group's ranks, which all ranks may access. A record says who wrote and read each
// aligned word of 4 bytes last. All host threads that use it hold the group's lock.
class SymmetricMemory {
 public:
  // Returns null if the system refuses the memory. `heap_bytes` is rounded up to whole pages.
  static std::unique_ptr<SymmetricMemory> create(int32_t ranks, int64_t heap_bytes);
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;

  std::byte* heap(int32_t rank) const { return base_ + rank * stride_; }
  int64_t heap_bytes() const { return heap_bytes_; }
  bool holds(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(base_) < static_cast<uintptr_t>(total_bytes_);
  }
  // Returns the rank whose heap holds the address, which is inside.
  int32_t owner_of(uintptr_t address) const {
    return static_cast<int32_t>((address - reinterpret_cast<uintptr_t>(base_)) /
                                static_cast<uintptr_t>(stride_));
  }

  // Record an access of a thread to bytes of one heap. update() is an atomic access: it is ordered
  // with everything except atomic accesses, and leaves no record.
  std::optional<Trouble> read(uintptr_t address, uint64_t bytes, const Accessor& who);
  std::optional<Trouble> write(uintptr_t address, uint64_t bytes, const Accessor& who);
  std::optional<Trouble> update(uintptr_t address, uint64_t bytes, const Accessor& who);
  // Records the store of a flag, which races with no other store or load of the flag.
  void write_flag(uintptr_t address, const Accessor& who);
  // Returns what is wrong with reading these bytes at any time.
  std::optional<Trouble> find_unwritten(uintptr_t address, uint64_t bytes);
  // Marks bytes as written once they have reached memory.
  void mark_landed(uintptr_t address, uint64_t bytes);
  // Forgets who accessed bytes that the host writes: everything is ordered with the host.
  void write_by_host(uintptr_t address, uint64_t bytes);
  // Ends an epoch of these bytes: a later read of a byte that nobody has written since then reads
  // stale data.
  void expire(uintptr_t address, uint64_t bytes);

 private:
  struct Word {
    AccessRecord written;
    AccessRecord read;  // a reader since the write; of several unordered ones the last
  };
  SymmetricMemory() = default;
  Word& word_at(uintptr_t address) const {
    return words_[(address - reinterpret_cast<uintptr_t>(base_)) / 4];
  }
  InitialisedBits& bits_of(uintptr_t address) {
    return *written_[static_cast<std::size_t>(owner_of(address))];
  }

  std::byte* base_ = nullptr;
  Word* words_ = nullptr;
  int64_t stride_ = 0;
  int64_t heap_bytes_ = 0;
  int64_t total_bytes_ = 0;
  std::vector<std::unique_ptr<InitialisedBits>> written_;
};

}  // namespace moejit::runtime
