// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

// The memory of the kernel before a launch that overlaps with it: what it may write and read, as
// its regions say. It counts as running until a thread of the launch waits for it.
class KernelBefore {
 public:
  explicit KernelBefore(std::span<const MemoryRegion> regions);

  // Returns why a thread that has not waited may not access these bytes; none if it may. It is a
  // clause such as "reads 4 bytes at byte 12 of counts, which the kernel before writes ...".
  std::optional<std::string> refusal(uintptr_t address, uint64_t bytes, const char* verb) const;

 private:
  struct Region {
    std::string name;
    uintptr_t begin = 0, end = 0;
    bool is_written = false;
  };
  std::vector<Region> regions_;
};

}  // namespace moejit::runtime
