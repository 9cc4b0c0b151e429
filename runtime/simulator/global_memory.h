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
#include <vector>

namespace moejit::runtime {

// One bit per byte: has something written it? Bits of one word may be set by several threads.
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
  // An aligned access of 1, 2, 4, 8 or 16 bytes.
  bool all(uintptr_t address, uint32_t bytes) const;
  bool all_of_range(uintptr_t address, uint64_t bytes) const;
  void set(uintptr_t address, uint32_t bytes);
  void set_range(uintptr_t address, uint64_t bytes);

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
  // Whether bytes that begin in an allocation end in it too. Other memory is the host's own.
  Result<void> check(const void* address, int64_t bytes) const;
  // The bits of the allocation that holds all these bytes, or nullptr.
  InitialisedBits* find(const void* address, int64_t bytes);

 private:
  // The allocation that the address lies in, or nullptr. Under the lock.
  InitialisedBits* allocation_of(uintptr_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, std::unique_ptr<InitialisedBits>> allocations_;
};

// Who accesses global memory.
struct GlobalActor {
  int32_t cta = 0;
  Actor actor;
};

// The memory of one launch: its regions, and who wrote what in it. Used by all host threads that
// run CTAs of the launch.
class LaunchMemory {
 public:
  LaunchMemory(std::span<const MemoryRegion> regions, Allocations& allocations);
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  // True where the access is fine; else say why with explain(). Aligned accesses only.
  bool access(uintptr_t address, uint32_t bytes, sim::Access kind, const GlobalActor& actor) const;
  // A clause such as "reads 4 bytes at byte 12 of x that nothing has written".
  std::string explain(uintptr_t address, uint32_t bytes, sim::Access kind,
                      const GlobalActor& actor) const;

  // Do these bytes lie in one region?
  bool contains(uintptr_t address, uint64_t bytes) const {
    return find(address, bytes, false) != nullptr;
  }
  // For tensor copies, which may read bytes that nothing has written. Is the access fine apart from
  // that? Any address and number of bytes.
  bool may_copy_from(uintptr_t address, uint64_t bytes, const GlobalActor& actor) const;
  // Has something written all of these bytes, which lie in a region?
  bool is_written(uintptr_t address, uint64_t bytes) const;
  // Do they lie in a region that the kernel may write?
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
