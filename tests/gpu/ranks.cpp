// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ranks.h"

#include "tests/support/matchers.h"
#include "tests/tested_target.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::testing {

std::unique_ptr<Ranks> Ranks::open(int32_t count, int64_t heap_bytes, uint64_t seed,
                                   std::string& why_not) {
  std::unique_ptr<Ranks> ranks(new Ranks);
  if (tested_target() == "sim") {
    // Fewer SMs for many ranks: each stack of a resident thread is two of the mappings that Linux
    // lets a process have.
    const int32_t sms = count > 4 ? 2 : 4;
    auto group = runtime::open_simulator_group(
        count, {.seed = seed, .heap_bytes = heap_bytes, .sm_count = sms});
    EXPECT_TRUE(succeeded(group));
    if (!group) return nullptr;
    ranks->group_ = std::move(*group);
    for (int32_t rank = 0; rank < count; ++rank) {
      ranks->devices_.push_back(&ranks->group_->device(rank));
      ranks->heaps_.push_back(ranks->group_->heap(rank));
    }
  } else {
    for (int32_t rank = 0; rank < count; ++rank) {
      auto device = runtime::open_cuda_device(rank);
      if (!device) {
        why_not = fmt::format("wanted {} GPUs, got {}", count, rank);
        return nullptr;
      }
      ranks->gpus_.push_back(std::move(*device));
      ranks->devices_.push_back(ranks->gpus_.back().get());
      auto heap = ranks->devices_.back()->allocate(heap_bytes);
      if (!succeeded(heap)) return nullptr;
      ranks->heaps_.push_back(static_cast<std::byte*>(*heap));
    }
    for (runtime::Device* from : ranks->devices_)
      for (runtime::Device* to : ranks->devices_)
        if (from != to && !succeeded(from->reach(*to))) return nullptr;
  }
  for (int32_t rank = 0; rank < count; ++rank)
    if (!succeeded(ranks->device(rank).fill(ranks->heap(rank), std::byte{0}, heap_bytes, nullptr)))
      return nullptr;
  if (!succeeded(ranks->synchronize())) return nullptr;
  return ranks;
}

Ranks::~Ranks() {
  if (group_ != nullptr) return;
  for (std::size_t rank = 0; rank < heaps_.size(); ++rank)
    EXPECT_TRUE(succeeded(devices_[rank]->release(heaps_[rank])));
}

Result<void> Ranks::synchronize() {
  if (group_ != nullptr) return group_->synchronize();
  for (runtime::Device* device : devices_) MOEJIT_TRY(device->synchronize(nullptr));
  return {};
}

}  // namespace moejit::testing
