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

// What a grouped GEMM reads, on a device, as params/*grouped_gemm_params.h describe it: operands,
// F32 scales and I32 groups. E groups, P rows or C columns, of which those that fill up groups hold
// zeros. Scales that the case has not are empty.
struct GemmOperands {
  // Row-grouped, E4M3 or BF16; contraction-grouped, E4M3
  NamedMemory a;  // [P, k]; [C / 128, rows, 128]
  NamedMemory a_scale_inv;
  NamedMemory b;  // [E, n, k]; [C / 128, n, 128]
  NamedMemory b_scale_inv;
  NamedMemory counts;  // [E]
  NamedMemory offs;    // [E + 1]
};

Result<NamedMemory> allocate_named(runtime::Device& device, std::string_view name, int64_t bytes);
template <typename T>
Result<NamedMemory> upload_named(runtime::Device& device, std::string_view name,
                                 const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  MOEJIT_TRY_ASSIGN(NamedMemory memory, allocate_named(device, name, bytes));
  MOEJIT_TRY(device.copy_to_device(memory.address(), values.data(), bytes));
  return memory;
}

// Of a row-grouped GEMM: random numbers, all of them different. Those with scales of blocks are
// quantised by the kernels that quantise a layer's activations and weights; the others are made as
// they are, with random scales around those which their size asks for.
Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device, uint64_t seed);

// Every kernel that make_operands() runs.
Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target);

}  // namespace moejit::cli
