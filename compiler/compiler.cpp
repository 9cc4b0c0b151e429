// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include "compiler/emitter/emitter.h"
#include "compiler/host/host_compiler.h"
#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "compiler/reproducer.h"
#include "compiler/worker/compile_in_worker.h"

#include <chrono>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

Result<CompiledKernel> compile_for_simulator_and_time(const KernelSource& source) {
  const auto start = std::chrono::steady_clock::now();
  MOEJIT_TRY_ASSIGN(KernelBinary binary, compile_for_simulator(source));
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start;
  return CompiledKernel{std::move(binary),
                        {.total = total.count(), .cpu = std::nullopt, .phases = std::nullopt}};
}

Result<CompiledKernel> compile_somewhere(const KernelSource& source,
                                         const CompileOptions& options) {
  switch (source.target.kind) {
    case TargetKind::kCuda:
      return options.worker.empty() ? compile_with_nvrtc_and_time(source, options.stop)
                                    : compile_in_worker(source, options.worker, options.stop);
    case TargetKind::kSim: return compile_for_simulator_and_time(source);
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

Result<KernelBinary> compile_kernel(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(CompiledKernel compiled, compile_kernel_and_time(source));
  if (compiled.loss) return tl::make_unexpected(std::move(*compiled.loss));
  return std::move(compiled.binary);
}

Result<CompiledKernel> compile_kernel_and_time(const KernelSource& source,
                                               const CompileOptions& options) {
  auto compiled = compile_somewhere(source, options);
  if (!compiled && !options.reproducer_dir.empty())
    add_reproducer(source, options.reproducer_dir, compiled.error());
  return compiled;
}

}  // namespace moejit::compiler
