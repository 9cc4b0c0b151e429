// SPDX-License-Identifier: Apache-2.0

#include "runtime/trial/open_target.h"

#include "compiler/compiler.h"

#include <fmt/core.h>
#include <utility>

namespace moejit::trial {

namespace {

Result<OpenedTarget> open_gpu() {
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Device> device, runtime::open_cuda_device());
  std::string description =
      fmt::format("{} on {}", compiler::to_string(device->target()), device->name());
  return OpenedTarget{std::move(device), std::move(description), ""};
}

bool is_no_usable_gpu(ErrorCode code) {
  return code == ErrorCode::kDriverMissing || code == ErrorCode::kNoDevice ||
         code == ErrorCode::kUnsupported;
}

Result<OpenedTarget> open_sim(uint64_t seed, std::string reason) {
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Device> device,
                    runtime::open_simulator({.seed = seed}));
  return OpenedTarget{std::move(device), "sim", std::move(reason)};
}

}  // namespace

std::string target_text(const OpenedTarget& target) {
  std::string text = "target " + target.description;
  if (!target.reason.empty()) text += ", the simulator, since there is no GPU: " + target.reason;
  return text;
}

Result<OpenedTarget> open_target(const std::string& name, uint64_t seed,
                                 std::string_view without_gpu) {
  if (name == "auto") {
    Result<OpenedTarget> gpu = open_gpu();
    if (gpu) return gpu;
    return open_sim(seed, gpu.error().message);
  }
  auto target = compiler::parse_target(name);
  if (!target)
    return fail(Stage::kCommand, ErrorCode::kInvalidValue,
                fmt::format("unknown target \"{}\", wanted auto, cuda:sm_90a or sim", name));
  if (target->kind == compiler::TargetKind::kSim) return open_sim(seed, "");
  Result<OpenedTarget> gpu = open_gpu();
  // Replaces the library's hint, which is written for programs, by one for users of a command.
  if (!gpu && is_no_usable_gpu(gpu.error().code)) gpu.error().hint = without_gpu;
  return gpu;
}

Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     std::function<void(std::string_view)> warn,
                                                     int32_t compile_jobs) {
  runtime::EngineOptions engine{.cache_dir = options.dir,
                                .use_cache = !options.is_disabled,
                                .pack_keys = options.pack_keys,
                                .frozen = options.is_frozen,
                                .own_compiler_only = options.own_compiler_only,
                                .warn = std::move(warn),
                                .compile_jobs = compile_jobs};
  if (!options.uses_packs || !options.packs.empty()) engine.packs = options.packs;
  if (!options.build_arguments.empty()) engine.build_arguments = options.build_arguments;
  return runtime::Engine::create(engine);
}

Result<int64_t> count_missing_kernels(const CacheOptions& options,
                                      std::span<const compiler::KernelSource> sources) {
  if (sources.empty()) return 0;
  // A frozen engine compiles nothing. Like an engine that compiles, it takes kernels of other
  // compilers only if this machine has no compiler.
  const bool has_compiler = compiler::toolchain_identity(sources.front()).has_value();
  runtime::EngineOptions frozen{.cache_dir = options.dir,
                                .use_cache = !options.is_disabled,
                                .pack_keys = options.pack_keys,
                                .frozen = true,
                                .own_compiler_only = options.own_compiler_only || has_compiler};
  if (!options.uses_packs || !options.packs.empty()) frozen.packs = options.packs;
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
