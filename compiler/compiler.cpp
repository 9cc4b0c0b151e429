// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include "compiler/emitter/emitter.h"
#include "compiler/host/host_compiler.h"
#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "compiler/reproducer.h"
#include "compiler/worker/compile_in_worker.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <iterator>

namespace moejit::compiler {
namespace {

// Every kernel gets an equal share of the time.
std::vector<Result<CompiledKernel>> compile_for_simulator_and_time(
    std::span<const KernelSource> sources) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Result<KernelBinary>> binaries = compile_unit_for_simulator(sources);
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start;
  const CompileTime time{.total = total.count() / static_cast<double>(sources.size()),
                         .cpu = std::nullopt,
                         .phases = std::nullopt};
  std::vector<Result<CompiledKernel>> kernels;
  for (Result<KernelBinary>& binary : binaries)
    kernels.push_back(std::move(binary).map([&](KernelBinary&& made) {
      return CompiledKernel{std::move(made), time};
    }));
  return kernels;
}

Result<CompiledKernel> compile_somewhere(const KernelSource& source,
                                         const CompileOptions& options) {
  switch (source.target.kind) {
    case TargetKind::kCuda:
      return options.worker.empty() ? compile_with_nvrtc_and_time(source, options.stop)
                                    : compile_in_worker(source, options.worker, options.stop);
    case TargetKind::kSim: return std::move(compile_for_simulator_and_time({&source, 1}).front());
  }
  return fail(Stage::kCompile, ErrorCode::kInternal, "unknown kind of target");
}

}  // namespace

Result<KernelSource> emit_kernel(const KernelPlan& kernel, const Target& target) {
  return emit(kernel, target);
}

Result<std::vector<std::string>> toolchain_identity(const KernelSource& source) {
  switch (source.target.kind) {
    case TargetKind::kCuda: return nvrtc_identity(source);
    case TargetKind::kSim: return host_toolchain_identity(source);
  }
  return fail(Stage::kCompile, ErrorCode::kInternal, "unknown kind of target");
}

bool is_toolchain_at_hand(const Target& target) {
  return target.kind != TargetKind::kCuda || is_nvrtc_release_at_hand();
}

std::vector<std::string> compiler_fields(const Target& target,
                                         std::span<const std::string> identity) {
  std::vector<std::string> fields;
  for (const std::string& field : identity)
    if (target.kind == TargetKind::kCuda ? is_nvrtc_field(field) : is_host_compiler_field(field))
      fields.push_back(field);
  return fields;
}

Result<std::optional<std::vector<std::string>>> toolchain_identity_with(
    const KernelSource& source, std::span<const std::string> compiler) {
  switch (source.target.kind) {
    case TargetKind::kCuda: return nvrtc_identity(source, compiler);
    case TargetKind::kSim: return host_toolchain_identity(source, compiler);
  }
  return fail(Stage::kCompile, ErrorCode::kInternal, "unknown kind of target");
}

Result<std::string> toolchain_description(const Target& target) {
  if (target.kind == TargetKind::kSim) return host_compiler_description();
  MOEJIT_TRY_ASSIGN(const NvrtcApi* api, nvrtc());
  return fmt::format("NVRTC {}.{}, {}", api->major, api->minor, api->path);
}

std::vector<std::vector<std::size_t>> compile_units(std::span<const KernelSource> sources,
                                                    int32_t jobs) {
  const bool is_sim = std::ranges::all_of(
      sources, [](const KernelSource& source) { return source.target.kind == TargetKind::kSim; });
  if (is_sim) return units_of(sources, static_cast<std::size_t>(std::max(jobs, 1)));
  std::vector<std::vector<std::size_t>> units;
  for (std::size_t i = 0; i < sources.size(); ++i) units.push_back({i});
  return units;
}

std::vector<Result<CompiledKernel>> compile_unit_and_time(std::span<const KernelSource> sources,
                                                          const CompileOptions& options) {
  std::vector<Result<CompiledKernel>> kernels;
  if (sources.size() > 1 && sources.front().target.kind == TargetKind::kSim)
    kernels = compile_for_simulator_and_time(sources);
  else
    for (const KernelSource& source : sources)
      kernels.push_back(compile_somewhere(source, options));
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (!kernels[i] && !options.reproducer_dir.empty())
      add_reproducer(sources[i], options.reproducer_dir, kernels[i].error());
  return kernels;
}

Result<CompiledKernel> compile_kernel_and_time(const KernelSource& source,
                                               const CompileOptions& options) {
  return std::move(compile_unit_and_time({&source, 1}, options).front());
}

}  // namespace moejit::compiler
