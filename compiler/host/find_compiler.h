// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

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
// standard library: exceptions, run-time types, its shared object. They have -O1, since -O2 takes a
// third longer to compile and makes kernels no faster.
std::vector<std::string> compile_options(std::string_view version);

}  // namespace moejit::compiler
