// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/digest.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace moejit::runtime {

// Kernels by key, which stay. The keys are in parts with a mutex each, so that threads that find
// something are seldom in each other's way; finding allocates nothing, asks the system for nothing,
// and reads one line of memory for most keys.
class KernelMemory {
 public:
  using Kernel = std::shared_ptr<const compiler::KernelBinary>;

  // Null where it is not there. What is found counts as a hit.
  const Kernel* find(const Digest& key) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    const Kernel* const found = part.kernel_at(key);
    if (found != nullptr) ++part.hits;
    return found;
  }

  // The same question, and no hit.
  bool contains(const Digest& key) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    return part.kernel_at(key) != nullptr;
  }

  // Where the key is there already, what it has stays.
  void add(const Digest& key, Kernel kernel) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    part.add(key, std::move(kernel));
  }

  int64_t hits() {
    int64_t sum = 0;
    for (Part& part : parts_) {
      const std::lock_guard lock(part.mutex);
      sum += part.hits;
    }
    return sum;
  }

  // All of it, around a fork().
  void lock() {
    for (Part& part : parts_) part.mutex.lock();
  }
  void unlock() {
    for (Part& part : parts_) part.mutex.unlock();
  }

 private:
  // A place of the table; the kernel is elsewhere, so that it stays where it is when the table
  // grows.
  struct alignas(64) Slot {
    Digest key;
    std::unique_ptr<const Kernel> kernel;  // null: free
  };

  // Open addressing: a key is at the place that its bits say, or behind it. They are as good as
  // random, and at least half of the places are free.
  struct alignas(64) Part {
    std::mutex mutex;
    std::vector<Slot> slots = std::vector<Slot>(16);  // a power of two
    std::size_t count = 0;
    int64_t hits = 0;

    Slot& slot_of(const Digest& key) {
      std::size_t at = 0;
      std::memcpy(&at, key.bytes.data(), sizeof(at));
      for (;; ++at) {
        Slot& slot = slots[at & (slots.size() - 1)];
        if (!slot.kernel || slot.key == key) return slot;
      }
    }
    const Kernel* kernel_at(const Digest& key) { return slot_of(key).kernel.get(); }
    void add(const Digest& key, Kernel kernel) {
      if (2 * (count + 1) > slots.size()) grow();
      Slot& slot = slot_of(key);
      if (slot.kernel) return;
      slot.kernel = std::make_unique<const Kernel>(std::move(kernel));
      slot.key = key;
      ++count;
    }
    void grow() {
      std::vector<Slot> old(2 * slots.size());
      old.swap(slots);
      for (Slot& slot : old) {
        if (!slot.kernel) continue;
        Slot& place = slot_of(slot.key);
        place.key = slot.key;
        place.kernel = std::move(slot.kernel);
      }
    }
  };

  // The place in a part takes the first bytes of the digest.
  Part& part_of(const Digest& key) { return parts_[key.bytes[31] % parts_.size()]; }

  std::array<Part, 64> parts_;
};

}  // namespace moejit::runtime
