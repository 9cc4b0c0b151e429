// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/gemm_case.h"
#include "cli/execution/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <string_view>
#include <vector>

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

// What a grouped GEMM reads, on a device: E4M3 operands, F32 scales and I32 groups. E groups, P
// rows or C columns, of which those that fill up groups hold zeros.
struct GemmOperands {
  // Row-grouped; contraction-grouped
  NamedMemory a;            // [P, k]; [rows, C]
  NamedMemory a_scale_inv;  // [P, ceil(k / 128)]; [ceil(rows / 128) or rows, C / 128]
  NamedMemory b;            // [E, n, k]; [n, C]
  NamedMemory b_scale_inv;  // [E, sections * ceil(n / sections / 128), ceil(k / 128)];
                            // [ceil(n / 128) or n, C / 128]
  NamedMemory counts;       // [E]
  NamedMemory offs;         // [E + 1]
};

Result<NamedMemory> allocate_named(runtime::Device& device, std::string_view name, int64_t bytes);
Result<NamedMemory> upload_named(runtime::Device& device, std::string_view name,
                                 const std::vector<int32_t>& values);

// Of a row-grouped GEMM: random numbers, all of them different, quantised on the device by the
// kernels that quantise a layer's activations and weights.
Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device, uint64_t seed);

}  // namespace moejit::cli
