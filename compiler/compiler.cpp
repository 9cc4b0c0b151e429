// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include "compiler/emitter/emitter.h"
#include "compiler/host/host_compiler.h"
#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/nvrtc_api.h"

#include <fmt/core.h>

namespace moejit::compiler {

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

Result<std::string> toolchain_description(const Target& target) {
  if (target.kind == TargetKind::kSim) return host_compiler_description();
  MOEJIT_TRY_ASSIGN(const NvrtcApi* api, nvrtc());
  return fmt::format("NVRTC {}.{}, {}", api->major, api->minor, api->path);
}

Result<KernelBinary> compile_kernel(const KernelSource& source) {
  switch (source.target.kind) {
    case TargetKind::kCuda: return compile_with_nvrtc(source);
    case TargetKind::kSim: return compile_for_simulator(source);
  }
  return fail(Stage::kCompile, ErrorCode::kInternal, "unknown kind of target");
}

}  // namespace moejit::compiler
