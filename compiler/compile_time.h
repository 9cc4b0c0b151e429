// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/error.h"

#include <optional>

namespace moejit::compiler {

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
  // Why the kernel is slow although its results are right (compiler/nvrtc/assembler_report.h), as
  // the error kCompileFailed that compile_kernel() returns for it. Absent if no loss is known.
  std::optional<Error> loss = std::nullopt;
};

}  // namespace moejit::compiler
