// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moejit::runtime {

// The share of this machine that a process may use for compiling.
struct CompileBudget {
  int32_t cores = 1;                    // cores that the process may run on
  std::optional<double> cpu_quota;      // cores' worth of time that its control group allows
  std::optional<int64_t> memory_bytes;  // bytes left until a limit or the end of memory
  int32_t jobs = 1;                     // kernels to compile at a time
};

// Upper bound on the memory of one compile.
inline constexpr int64_t kCompileMemoryBytes = int64_t{512} << 20;

// Reads the budget from the system. It reads the affinity of the calling thread, /proc/meminfo, and
// control groups of version 1 and 2 from the process's own up to the root. `root` stands before
// these paths, for tests. Anything that cannot be read limits nothing.
CompileBudget compile_budget(const std::string& root = {});

// Returns for example "2 jobs: 16 cores, CPU quota 2.0, 3.1 GiB of memory".
std::string to_string(const CompileBudget& budget);

}  // namespace moejit::runtime
