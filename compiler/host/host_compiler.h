// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Makes a shared object for the simulator from the emitted text and the simulator's headers. Runs
// the system's C++ compiler in a process of its own: $MOEJIT_CXX, else c++, g++ or clang++ on the
// PATH. Equal sources and toolchain_identity() give equal bytes. Errors: kCompilerMissing;
// kCompileFailed with the compiler's log and the numbered source in `detail`.
Result<KernelBinary> compile_for_simulator(const KernelSource& source);

// Makes the shared objects for the kernels of one unit (kernel_unit.h). For many kernels of a kind
// this takes a third of the time of separate compiles. Each kernel gets a shared object of its own.
// Its bytes depend on the other kernels of the unit too, but it computes the same. A unit that
// fails is halved until the kernel to blame is alone, so errors are about that kernel. Returns a
// result for each source.
std::vector<Result<KernelBinary>> compile_unit_for_simulator(std::span<const KernelSource> sources);

// Returns what decides the bytes besides the source, as "name=value". That is the compiler's
// version (not its path), the options with the processor level, and the digests of the included
// headers.
Result<std::vector<std::string>> host_toolchain_identity(const KernelSource& source);
// Returns the identity for another compiler, which `compiler` names by its one field; none if the
// fields name no such compiler.
Result<std::optional<std::vector<std::string>>> host_toolchain_identity(
    const KernelSource& source, std::span<const std::string> compiler);
// Returns whether this field names the compiler.
bool is_host_compiler_field(std::string_view field);

// Returns for example "g++ (Debian 12.2.0-14) 12.2.0, /usr/bin/c++". Errors: kCompilerMissing.
Result<std::string> host_compiler_description();

}  // namespace moejit::compiler
