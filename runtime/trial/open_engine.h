// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/engine.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::trial {

// Where kernels come from.
struct CacheOptions {
  std::string dir;  // empty: the default folder
  bool is_disabled = false;
  bool is_frozen = false;
  std::vector<std::string> packs;  // empty: the packs in MOEJIT_PACKS
  bool uses_packs = true;
  bool own_compiler_only = false;  // as in runtime::EngineOptions
  std::string pack_keys;           // empty: MOEJIT_PACK_KEYS
  // Text after "moejit build" in the error of a frozen cache; empty: unknown.
  std::string build_arguments;
};

// Returns an engine with this cache; it passes its warnings to `warn`. $MOEJIT_FROZEN counts like
// `is_frozen`. `compile_jobs` is as in EngineOptions.
Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     std::function<void(std::string_view)> warn,
                                                     int32_t compile_jobs = 0);

// Returns how many of the kernels an engine with these options would have to compile. Compiles
// nothing and gives no warnings.
Result<int64_t> count_missing_kernels(const CacheOptions& options,
                                      std::span<const compiler::KernelSource> sources);

// Returns "compiled: 8, from cache: 0", and how many came from packs if any did.
std::string counters_text(const runtime::EngineCounters& counters);

}  // namespace moejit::trial
