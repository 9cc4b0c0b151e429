// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/target.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// What a kernel costs per thread and CTA, read from the binary; the spills are from the assembler's
// report. Simulator binaries have none.
struct ResourceUsage {
  int32_t registers = 0;            // per thread
  int32_t static_shared_bytes = 0;  // per CTA, without the dynamic part
  int32_t stack_bytes = 0;          // per thread, local memory
  int32_t spill_store_bytes = 0;    // per thread
  int32_t spill_load_bytes = 0;
  int32_t code_bytes = 0;
  bool operator==(const ResourceUsage&) const = default;
};

// Machine code that a loader takes: a cubin (ELF) for CUDA, a shared object for the simulator.
struct KernelBinary {
  std::string entry;
  Target target;
  std::vector<std::byte> bytes;
  std::optional<ResourceUsage> usage;
  bool operator==(const KernelBinary&) const = default;
};

// Returns the names of the kernels in a cubin, in file order. Any bytes may be given. Error
// kInternal: the bytes are not a well-formed ELF image.
Result<std::vector<std::string>> cubin_entries(std::span<const std::byte> cubin);

// Returns registers, static shared memory, stack and code size of one kernel of a cubin; spills are
// not in a cubin. Any bytes may be given. Error kInternal: malformed, or no such kernel.
Result<ResourceUsage> cubin_resource_usage(std::span<const std::byte> cubin,
                                           std::string_view entry);

// Seconds that a compiler spent in each of its phases.
struct CompilePhases {
  double front_end = 0;  // parses and instantiates templates
  double optimizer = 0;  // makes PTX
  double assembler = 0;  // ptxas: makes machine code
  bool operator==(const CompilePhases&) const = default;
};

// Seconds that one call of a compiler took. The wall times `total` and `phases` grow if the
// compiler has to share its core; `cpu` does not. A field is absent if the compiler does not tell
// it.
struct CompileTime {
  double total = 0;
  std::optional<double> cpu;
  std::optional<CompilePhases> phases;
};

// A kernel that was compiled just now. Time and loss are not part of the binary, so that equal
// sources make equal binaries.
struct CompiledKernel {
  KernelBinary binary;
  CompileTime time;
  // Why the kernel is slow although its results are right (compiler/nvrtc/compile_reports.h), as
  // an error kCompileFailed. Absent if no loss is known.
  std::optional<Error> loss = std::nullopt;
};

}  // namespace moejit::compiler
