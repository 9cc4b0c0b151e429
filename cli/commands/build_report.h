// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/build_jobs.h"
#include "cli/commands/kernel_commands.h"
#include "compiler/support/digest.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// Facts about a pack that a build wrote, read from its file.
struct BuiltPack {
  std::string path;
  int64_t kernels = 0;
  int64_t bytes = 0;
  Digest digest;
};

// The result of a build. Its jobs have kernels or errors.
struct BuildResult {
  const std::vector<BuildJob>& jobs;  // the slowest first
  const std::optional<BuiltPack>& pack;
  const runtime::Engine& engine;
};

// Returns the wall time of the job's compile, 0 if nothing was compiled.
double compile_seconds(const BuildJob& job);

// Return the report of a build: JSON, a table with a row for each kernel, and a table with a row
// for each description. The table of kernels is at most `width` characters wide (0: any).
std::string build_json(const BuildCommand& command, const BuildResult& result);
std::string build_text(const BuildCommand& command, const BuildResult& result, int32_t width);
std::string build_summary(const BuildCommand& command, const BuildResult& result, int32_t width);

}  // namespace moejit::cli
