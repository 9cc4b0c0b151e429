// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/gemm_case.h"
#include "cli/execution/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <string_view>

namespace moejit::cli {

// Memory of a device with a name for the simulator's reports.
struct NamedMemory {
  std::string_view name;
  int64_t bytes = 0;
  DeviceMemory memory;

  void* address() const { return memory.address(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory.address());
  }
  runtime::MemoryRegion region(bool is_written = false) const {
    return {name, memory.address(), bytes, is_written};
  }
};

// What a grouped GEMM reads, on a device. P rows, E groups; pad rows hold zeros.
struct GemmOperands {
  NamedMemory a;            // E4M3 [P, k]
  NamedMemory a_scale_inv;  // F32 [P, ceil(k / 128)]
  NamedMemory b;            // E4M3 [E, n, k]
  NamedMemory b_scale_inv;  // F32 [E, sections * ceil(n / sections / 128), ceil(k / 128)]
  NamedMemory counts;       // I32 [E]
  NamedMemory offs;         // I32 [E + 1]
};

Result<NamedMemory> allocate_named(runtime::Device& device, std::string_view name, int64_t bytes);

// Random numbers, all of them different, quantised on the device by the kernels that quantise a
// layer's activations and weights.
Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device, uint64_t seed);

}  // namespace moejit::cli
