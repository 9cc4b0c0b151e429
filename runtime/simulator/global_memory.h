// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/simulator/ordering.h"

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Ends the clause of LaunchMemory::explain() about bytes that nothing has written.
inline constexpr std::string_view kNothingHasWritten = " that nothing has written";

// One bit for each byte: whether something has written the byte. Several threads may set bits of
// one word.
class InitialisedBits {
 public:
  InitialisedBits(uintptr_t address, int64_t bytes);
  ~InitialisedBits();
  InitialisedBits(const InitialisedBits&) = delete;
  InitialisedBits& operator=(const InitialisedBits&) = delete;

  uintptr_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  bool contains(uintptr_t address, uint64_t bytes) const {
    return address >= address_ && address - address_ + bytes <= bytes_;
  }
  // Returns whether all bytes of an aligned access of 1, 2, 4, 8 or 16 bytes are set.
  bool all(uintptr_t address, uint32_t bytes) const;
  bool all_of_range(uintptr_t address, uint64_t bytes) const;
  void set(uintptr_t address, uint32_t bytes);
  void set_range(uintptr_t address, uint64_t bytes);
  void clear_range(uintptr_t address, uint64_t bytes);

 private:
  uintptr_t address_;
  uint64_t bytes_;
  uint8_t* bits_;
};

// Memory that the simulator's Device handed out.
class Allocations {
 public:
  ~Allocations();
  Result<void*> allocate(int64_t bytes);
  Result<void> release(void* address);
  // Checks that bytes which begin in an allocation also end in it. Other memory is the host's own.
  Result<void> check(const void* address, int64_t bytes) const;
  // Returns the bits of the allocation that holds all these bytes, or nullptr.
  InitialisedBits* find(const void* address, int64_t bytes);

 private:
  // Returns the allocation that holds the address, or nullptr. Needs the lock held.
  InitialisedBits* allocation_of(uintptr_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, std::unique_ptr<InitialisedBits>> allocations_;
};

// What a CTA knows of the others of its launch. Stamps of writes have a hash of their CTA.
class KnownCtas {
 public:
  static constexpr int32_t kHashBits = 10;
  static uint32_t hash(int32_t cta) {
    return (static_cast<uint32_t>(cta) * 0x9e3779b1u) >> (32 - kHashBits);
  }

  virtual ~KnownCtas() = default;
  // Returns whether an access of a CTA with that hash is ordered before what the actor does now; 0
  // stands for any access.
  virtual bool knows_cta(uint32_t hash, Stamp past, const Actor& now) const = 0;
};

// The thread or agent that accesses global memory.
struct GlobalActor {
  int32_t cta = 0;
  Actor actor;
  const KnownCtas* others = nullptr;  // null: CTAs of a launch have no order
};

// The memory of one launch: its regions, and who wrote what in it. All host threads that run CTAs
// of the launch use it.
class LaunchMemory {
 public:
  LaunchMemory(std::span<const MemoryRegion> regions, Allocations& allocations);
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  // Returns whether an aligned access is fine; explain() says why it is not.
  bool access(uintptr_t address, uint32_t bytes, sim::Access kind, const GlobalActor& actor) const;
  // Returns a clause such as "reads 4 bytes at byte 12 of x that nothing has written".
  std::string explain(uintptr_t address, uint32_t bytes, sim::Access kind,
                      const GlobalActor& actor) const;

  // Returns a place such as "byte 12 of x"; the address lies in a region.
  std::string place_of(uintptr_t address) const;

  // Returns whether these bytes lie in one region.
  bool contains(uintptr_t address, uint64_t bytes) const {
    return find(address, bytes, false) != nullptr;
  }
  // Returns whether a tensor copy may read these bytes, apart from bytes that nothing has written,
  // which it may read too. Takes any address and number of bytes.
  bool may_copy_from(uintptr_t address, uint64_t bytes, const GlobalActor& actor) const;
  // Returns whether something has written all of these bytes, which lie in a region.
  bool is_written(uintptr_t address, uint64_t bytes) const;
  // Returns whether these bytes lie in a region that the kernel may write.
  bool is_writable(uintptr_t address, uint64_t bytes) const {
    return find(address, bytes, true) != nullptr;
  }

 private:
  struct Region {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool is_writable = false;
    std::string name;
    InitialisedBits* initialised = nullptr;  // null: all of it counts as written
    uint32_t* stamps = nullptr;              // of writable memory, one per 4 bytes
    uintptr_t stamps_begin = 0;
  };
  struct Mapping {
    void* address;
    std::size_t bytes;
  };

  const Region* find(uintptr_t address, uint64_t bytes, bool for_write) const;
  void map_stamps();

  std::vector<Region> regions_;
  std::vector<Mapping> mappings_;
};

}  // namespace moejit::runtime
