// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/stack_slab.h"

#include <new>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

constexpr std::size_t kPageBytes = 4096;
// The tops of neighboring stacks differ in their low address bits. Otherwise the hot ends of all
// stacks would fall into the same few sets of the processor's caches.
constexpr std::size_t kColorBytes = 28 * 1024;
constexpr std::size_t kColorStep = 17 * 64;
constexpr std::size_t kStrideBytes = StackSlab::kStackBytes + kColorBytes + kPageBytes;
constexpr std::size_t kStacksOffset = 4 * kPageBytes;
static_assert(sizeof(sim::Machine) <= kStacksOffset);
static_assert(kStacksOffset + StackSlab::kMaxThreads * kStrideBytes <= sim::kSlabBytes);

}  // namespace

std::unique_ptr<StackSlab> StackSlab::create() {
  // Twice the size contains an aligned slab; the rest is given back.
  void* mapped = mmap(nullptr, 2 * sim::kSlabBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (sim::kSlabBytes - reinterpret_cast<uintptr_t>(mapped) % sim::kSlabBytes) % sim::kSlabBytes;
  if (before > 0) munmap(first, before);
  munmap(first + before + sim::kSlabBytes, sim::kSlabBytes - before);
  return std::unique_ptr<StackSlab>(new StackSlab(first + before));
}

StackSlab::~StackSlab() { munmap(base_, sim::kSlabBytes); }

std::byte* StackSlab::stack_top(int32_t thread) const {
  const auto index = static_cast<std::size_t>(thread);
  const std::size_t color = index * kColorStep % kColorBytes;
  return base_ + kStacksOffset + (index + 1) * kStrideBytes - color;
}

void StackSlab::guard(int32_t threads) {
  for (; guarded_ < threads; ++guarded_) {
    std::byte* lowest = base_ + kStacksOffset + static_cast<std::size_t>(guarded_) * kStrideBytes;
    // Each guard splits a mapping, and the number of mappings is limited: go on without guards.
    if (mprotect(lowest, kPageBytes, PROT_NONE) != 0) return;
  }
}

}  // namespace moejit::runtime
