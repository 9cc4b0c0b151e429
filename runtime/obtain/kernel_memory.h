// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/digest.h"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace moejit::runtime {

// Kernels by key. The map is in parts with a mutex each, so that threads that find something are
// seldom in each other's way; finding allocates nothing and asks the system for nothing.
class KernelMemory {
 public:
  using Kernel = std::shared_ptr<const compiler::KernelBinary>;

  // Null where it is not there. What is found counts as a hit.
  Kernel find(const Digest& key) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    const auto found = part.kernels.find(key);
    if (found == part.kernels.end()) return nullptr;
    ++part.hits;
    return found->second;
  }

  // The same question without the answer, and no hit.
  bool contains(const Digest& key) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    return part.kernels.contains(key);
  }

  void add(const Digest& key, Kernel kernel) {
    Part& part = part_of(key);
    const std::lock_guard lock(part.mutex);
    part.kernels.emplace(key, std::move(kernel));
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
  struct alignas(64) Part {  // a cache line of its own
    std::mutex mutex;
    std::unordered_map<Digest, Kernel, DigestHash> kernels;
    int64_t hits = 0;
  };

  // The map inside takes the first bytes of the digest.
  Part& part_of(const Digest& key) { return parts_[key.bytes[31] % parts_.size()]; }

  std::array<Part, 64> parts_;
};

}  // namespace moejit::runtime
