// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/simulator_group.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// The GPUs of a group and its memory, of the target that this executable tests: simulated ones, or
// the first GPUs of this machine.
class Ranks {
 public:
  // Returns null and tells `why_not` where there are not as many GPUs. The heaps hold zeros.
  static std::unique_ptr<Ranks> open(int32_t count, int64_t heap_bytes, uint64_t seed,
                                     std::string& why_not);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int32_t count() const { return static_cast<int32_t>(devices_.size()); }
  runtime::Device& device(int32_t rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  std::byte* heap(int32_t rank) { return heaps_[static_cast<std::size_t>(rank)]; }
  // Returns the simulated group; null on GPUs.
  runtime::SimulatorGroup* simulated() { return group_.get(); }
  // Waits for all ranks.
  Result<void> synchronize();

 private:
  Ranks() = default;

  std::unique_ptr<runtime::SimulatorGroup> group_;
  std::vector<std::unique_ptr<runtime::Device>> gpus_;
  std::vector<runtime::Device*> devices_;
  std::vector<std::byte*> heaps_;
};

}  // namespace moejit::testing
