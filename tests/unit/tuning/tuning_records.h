// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"

namespace moejit::compiler {

inline GpuIdentity h200() {
  return {.name = "NVIDIA H200",
          .sm_count = 132,
          .l2_bytes = int64_t{60} << 20,
          .memory_bus_bits = 6144,
          .memory_megahertz = 3201,
          .most_megahertz = 1980,
          .power_limit_watts = 700};
}
inline GpuIdentity h100() {
  return {.name = "NVIDIA H100 80GB HBM3",
          .sm_count = 132,
          .l2_bytes = int64_t{50} << 20,
          .memory_bus_bits = 5120,
          .memory_megahertz = 2619,
          .most_megahertz = 1980,
          .power_limit_watts = 700};
}

inline TuningEntry entry(std::string problem, Choices choices, int64_t rounds = 12) {
  return {.problem = std::move(problem),
          .choices = std::move(choices),
          .microseconds = 900.5,
          .default_microseconds = 1000.0,
          .ratio = 0.9005,
          .ratio_low = 0.895,
          .ratio_high = 0.91,
          .rounds = rounds,
          .text_digest = "0123456789abcdef0123456789abcdef",
          .session = "s1",
          .date = "2026-12-02",
          .version = "0.1.0"};
}

}  // namespace moejit::compiler
