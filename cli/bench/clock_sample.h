// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit::cli {

// How far an SM's clock and the GPU's timer went meanwhile; as kernels write it.
struct ClockSample {
  uint64_t cycles = 0;
  uint64_t nanoseconds = 0;
  double megahertz() const {
    return 1000.0 * static_cast<double>(cycles) / static_cast<double>(nanoseconds);
  }
};

}  // namespace moejit::cli
