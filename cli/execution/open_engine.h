// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "runtime/engine.h"

#include <memory>
#include <span>
#include <string>

namespace moejit::cli {

// Returns an engine with the cache that the command line asks for; its warnings go to the terminal,
// which must live longer. $MOEJIT_FROZEN counts like --frozen. `compile_jobs` is as in
// EngineOptions.
Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     const Terminal& terminal,
                                                     int32_t compile_jobs = 0);

// Returns how many of the kernels an engine with these options would have to compile. Compiles
// nothing and says nothing.
Result<int64_t> count_missing_kernels(const CacheOptions& options,
                                      std::span<const compiler::KernelSource> sources);

// Returns "compiled: 8, from cache: 0", and how many came from packs if any did.
std::string counters_text(const runtime::EngineCounters& counters);

}  // namespace moejit::cli
