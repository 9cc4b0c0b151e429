// SPDX-License-Identifier: Apache-2.0

#include "runtime/trial/open_engine.h"

#include "compiler/compiler.h"

#include <fmt/core.h>
#include <utility>

namespace moejit::trial {

namespace {

runtime::EngineOptions engine_options(const CacheOptions& options) {
  runtime::EngineOptions engine{.cache_dir = options.dir,
                                .use_cache = !options.is_disabled,
                                .pack_keys = options.pack_keys,
                                .frozen = options.is_frozen,
                                .own_compiler_only = options.own_compiler_only};
  if (!options.uses_packs || !options.packs.empty()) engine.packs = options.packs;
  return engine;
}

}  // namespace

Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     std::function<void(std::string_view)> warn,
                                                     int32_t compile_jobs) {
  runtime::EngineOptions engine = engine_options(options);
  engine.warn = std::move(warn);
  engine.compile_jobs = compile_jobs;
  if (!options.build_arguments.empty()) engine.build_arguments = options.build_arguments;
  return runtime::Engine::create(engine);
}

Result<int64_t> count_missing_kernels(const CacheOptions& options,
                                      std::span<const compiler::KernelSource> sources) {
  if (sources.empty()) return 0;
  runtime::EngineOptions frozen = engine_options(options);
  frozen.frozen = true;
  // A frozen engine compiles nothing. Like an engine that compiles, it takes kernels of other
  // compilers only if this machine has no compiler.
  frozen.own_compiler_only |= compiler::toolchain_identity(sources.front()).has_value();
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine, runtime::Engine::create(frozen));
  int64_t missing = 0;
  for (const compiler::KernelSource& source : sources) missing += engine->binary(source) ? 0 : 1;
  return missing;
}

std::string counters_text(const runtime::EngineCounters& counters) {
  std::string text =
      fmt::format("compiled: {}, from cache: {}", counters.compiled, counters.from_cache);
  if (counters.from_packs > 0) text += fmt::format(", from packs: {}", counters.from_packs);
  return text;
}

}  // namespace moejit::trial
