// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/group/cta_knowledge.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace moejit::runtime {

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
