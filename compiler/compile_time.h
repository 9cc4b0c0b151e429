// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/error.h"

#include <optional>

namespace moejit::compiler {

// Where a compiler's time went, in seconds.
struct CompilePhases {
  double front_end = 0;  // parses and instantiates templates
  double optimizer = 0;  // makes PTX
  double assembler = 0;  // ptxas: makes machine code
  bool operator==(const CompilePhases&) const = default;
};

// What one call of a compiler took, in seconds. The wall times, `total` and the phases, are longer
// where the compiler has to share its core; `cpu` is not. Absent is what the compiler does not
// tell.
struct CompileTime {
  double total = 0;
  std::optional<double> cpu;
  std::optional<CompilePhases> phases;
};

// A kernel that was compiled just now. Time and loss are no part of the binary: equal sources make
// equal binaries.
struct CompiledKernel {
  KernelBinary binary;
  CompileTime time;
  // Why the kernel is slow although its results are right (compiler/nvrtc/assembler_report.h), as
  // the error kCompileFailed that it is to who wants no such kernel. Absent where nothing is known.
  std::optional<Error> loss = std::nullopt;
};

}  // namespace moejit::compiler
