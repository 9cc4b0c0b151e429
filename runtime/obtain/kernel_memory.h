// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/digest.h"
#include "runtime/obtain/huge_page_allocator.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace moejit::runtime {

// Kernels by key, kept as long as this object lives. A lookup takes no lock, allocates nothing, and
// asks the system for nothing. For most keys it reads one line of memory, so that threads that look
// up never disturb each other.
class KernelMemory {
 public:
  using Kernel = std::shared_ptr<const compiler::KernelBinary>;

  // Returns the kernel, or null. A kernel that is found counts as a hit.
  const Kernel* find(const Digest& key) {
    const Kernel* const found = kernel_at(key);
    if (found != nullptr) hits_[place_of_thread()].count.fetch_add(1, std::memory_order_relaxed);
    return found;
  }

  // Returns whether the kernel is there, without counting a hit.
  bool contains(const Digest& key) const { return kernel_at(key) != nullptr; }

  // Adds a kernel, unless the key is there already.
  void add(const Digest& key, Kernel kernel) {
    const std::lock_guard lock(mutex_);
    if (kernel_at(key) != nullptr) return;
    if (2 * (kernels_.size() + 1) > tables_.back()->size()) grow();
    put(*tables_.back(), key, &kernels_.emplace_back(std::move(kernel)));
  }

  int64_t hits() const {
    int64_t sum = 0;
    for (const Hits& hits : hits_) sum += hits.count.load(std::memory_order_relaxed);
    return sum;
  }

  // Are called around a fork(), so that nobody adds meanwhile.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // A place of a table. Its key is written before its kernel, and neither changes afterwards.
  struct alignas(64) Slot {
    Digest key;
    std::atomic<const Kernel*> kernel{nullptr};  // null: free
  };
  // Uses open addressing: a key is at the place that its bits name, or behind it. The bits are as
  // good as random, and at least half of the places, a power of two, are free.
  using Table = std::vector<Slot, HugePageAllocator<Slot>>;
  // A cache line that counts the hits of one thread, or of few threads.
  struct alignas(64) Hits {
    std::atomic<int64_t> count{0};
  };

  static std::size_t first_place(const Digest& key) {
    std::size_t at = 0;
    std::memcpy(&at, key.bytes.data(), sizeof(at));
    return at;
  }
  const Kernel* kernel_at(const Digest& key) const {
    const Table& table = *table_.load(std::memory_order_acquire);
    for (std::size_t at = first_place(key);; ++at) {
      const Slot& slot = table[at & (table.size() - 1)];
      const Kernel* const kernel = slot.kernel.load(std::memory_order_acquire);
      if (kernel == nullptr || slot.key == key) return kernel;
    }
  }
  static void put(Table& table, const Digest& key, const Kernel* kernel) {
    std::size_t at = first_place(key);
    while (table[at & (table.size() - 1)].kernel.load(std::memory_order_relaxed) != nullptr) ++at;
    Slot& slot = table[at & (table.size() - 1)];
    slot.key = key;
    slot.kernel.store(kernel, std::memory_order_release);
  }
  // Doubles the table. Threads may still be reading the old table, so it stays; all old tables
  // together are no larger than the new one.
  void grow() {
    const Table& old = *tables_.back();
    auto larger = std::make_unique<Table>(2 * old.size());
    for (const Slot& slot : old)
      if (const Kernel* const kernel = slot.kernel.load(std::memory_order_relaxed))
        put(*larger, slot.key, kernel);
    tables_.push_back(std::move(larger));
    table_.store(tables_.back().get(), std::memory_order_release);
  }
  std::size_t place_of_thread() const {
    static std::atomic<std::size_t> threads{0};
    thread_local const std::size_t place = threads.fetch_add(1, std::memory_order_relaxed);
    return place % hits_.size();
  }

  std::mutex mutex_;  // guards adding
  std::vector<std::unique_ptr<Table>> tables_ = first_table();
  std::atomic<const Table*> table_{tables_.back().get()};
  std::deque<Kernel> kernels_;
  std::array<Hits, 64> hits_;

  static std::vector<std::unique_ptr<Table>> first_table() {
    std::vector<std::unique_ptr<Table>> tables;
    tables.push_back(std::make_unique<Table>(256));
    return tables;
  }
};

}  // namespace moejit::runtime
