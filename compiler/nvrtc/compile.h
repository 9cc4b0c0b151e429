// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Returns a cubin for the source's target, made by NVRTC in this process with the embedded headers.
// Any number of threads may compile at once. Equal sources and identities give equal bytes. A
// kernel that ptxas made slow has a loss (see compile_reports.h). Errors: kCompilerMissing, also
// if NVRTC does not find its builtins. kCompileFailed with NVRTC's log and the numbered source in
// `detail`. kOutOfMemory; kCompilerFault for any other failure of NVRTC. kInterrupted soon after
// `stop` is requested, if NVRTC can be stopped (13.0, or 12.x that has nvrtcSetFlowCallback).
Result<CompiledKernel> compile_with_nvrtc_and_time(const KernelSource& source,
                                                   const std::stop_token& stop = {});

// Returns what decides the bytes besides the source, as "name=value": NVRTC's version and build
// ids, the options, the digests of the included headers. No paths. NVRTC is not opened if its files
// tell.
Result<std::vector<std::string>> nvrtc_identity(const KernelSource& source);
// Returns the identity for another NVRTC, given by its three fields; none if the fields name no
// NVRTC.
Result<std::optional<std::vector<std::string>>> nvrtc_identity(
    const KernelSource& source, std::span<const std::string> compiler);
// Returns whether this is a field that names NVRTC's release.
bool is_nvrtc_field(std::string_view field);

}  // namespace moejit::compiler
