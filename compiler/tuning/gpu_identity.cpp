// SPDX-License-Identifier: Apache-2.0
#include "compiler/tuning.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

bool agree(int64_t one, int64_t other) { return one == 0 || other == 0 || one == other; }

// Returns the multiple of 25 W that is nearest.
int64_t rounded_watts(int64_t watts) { return (watts + 12) / 25 * 25; }

}  // namespace

bool is_same_family(const GpuIdentity& one, const GpuIdentity& other) {
  return one.arch == other.arch && agree(one.sm_count, other.sm_count);
}

bool is_same_gpu(const GpuIdentity& one, const GpuIdentity& other) {
  return is_same_family(one, other) && agree(one.l2_bytes, other.l2_bytes) &&
         agree(one.memory_bus_bits, other.memory_bus_bits) &&
         agree(one.memory_megahertz, other.memory_megahertz) &&
         agree(one.most_megahertz, other.most_megahertz) &&
         agree(rounded_watts(one.power_limit_watts), rounded_watts(other.power_limit_watts));
}

std::string to_string(const GpuIdentity& gpu) {
  std::string facts;
  const auto add = [&facts](int64_t value, std::string_view unit) {
    if (value > 0) facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", value, unit);
  };
  add(gpu.sm_count, "SMs");
  add(gpu.l2_bytes >> 20, "MiB of L2");
  add(gpu.power_limit_watts, "W");
  const std::string& name = gpu.name.empty() ? gpu.arch : gpu.name;
  return facts.empty() ? name : fmt::format("{} ({})", name, facts);
}

}  // namespace moejit::compiler
