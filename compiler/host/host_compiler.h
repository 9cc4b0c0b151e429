// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <cstddef>
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

// Makes the shared objects for the kernels of one unit (host_compiler.h). For many kernels of a
// kind this takes a third of the time of separate compiles. Each kernel gets a shared object of its
// own. Its bytes depend on the other kernels of the unit too, but it computes the same. A unit that
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

// The C++ compiler of this machine that makes kernels for the simulator.
struct HostCompiler {
  std::string path;
  std::string version;   // first line of --version
  std::string identity;  // the version, and a digest that tells compilers of this version apart
};

// Finds the compiler. The PATH is searched once per process; $MOEJIT_CXX is read each time. Error
// kCompilerMissing.
Result<HostCompiler> find_compiler();

// Returns the options for a compiler whose version is this line. The options forbid contraction, so
// that fp32 arithmetic rounds where the source says so. They also forbid everything that needs the
// standard library: exceptions, run-time types, its shared object. They optimise little: a kernel
// takes longer to compile than to run, and most of a run is spent in the simulator's library.
std::vector<std::string> compile_options(std::string_view version);

// A unit is a list of kernels that the host compiler gets as one text. It saves time because most
// of a kernel's compile time goes into headers and into code that kernels of a kind share. Every
// text stays as it is, in a namespace of its own, and keeps its name and lines in messages.

// Most kernels of a unit: with more, little is left to share.
inline constexpr std::size_t kMostKernelsOfUnit = 27;

// Divides sources into units, given by indices of `sources`, the largest units first. Kernels of a
// unit have the same list of includes, so each sees the headers that it would see alone. Their
// entries differ. A source whose text has other directives is a unit of its own. Units are small
// enough that `jobs` compilers all have work. The result depends on nothing but the arguments.
std::vector<std::vector<std::size_t>> units_of(std::span<const KernelSource> sources,
                                               std::size_t jobs);

// Returns the text of a unit: the includes of the first source, then all texts.
std::string text_of_unit(std::span<const KernelSource> sources);

}  // namespace moejit::compiler
