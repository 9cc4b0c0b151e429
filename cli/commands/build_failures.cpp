// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_failures.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>

namespace moejit::cli {
namespace {

// Kernels that do the work of two, and the field that takes them apart.
struct FusedKernel {
  std::string_view operation;
  std::string_view field;
};
constexpr FusedKernel kFusedKernels[] = {
    {"gemm_fc1_activation_quantize", "fuse_activation"},
    {"permute_transpose_x", "fuse_transpose"},
    {"permute_transpose_grad", "fuse_transpose"},
    {"activation_backward_quantize_transpose", "fuse_activation_transpose"},
};

// For who wrote the layer.
Error told(const BuildJob& job) {
  Error error = *job.error;
  error.message = fmt::format("{}: layer \"{}\": {}: {}", job.file, job.layer, job.operation,
                              job.error->message);
  const auto* const fused =
      std::ranges::find(kFusedKernels, job.operation, &FusedKernel::operation);
  if (fused != std::end(kFusedKernels))
    error.hint = fmt::format("set \"{}\": false in {}: other kernels do the same then{}{}",
                             fused->field, job.file, error.hint.empty() ? "" : "; ", error.hint);
  error.detail.clear();
  return error;
}

}  // namespace

bool is_of_one_kernel(const Error& error) {
  return error.code == ErrorCode::kCompileFailed || error.code == ErrorCode::kCompilerFault;
}

Result<void> report_failures(const std::vector<BuildJob>& jobs, const Terminal& terminal) {
  const BuildJob* first = nullptr;
  int64_t failures = 0;
  std::string logs;
  for (const BuildJob& job : jobs) {
    if (!job.error) continue;
    if (first == nullptr) first = &job;
    ++failures;
    terminal.report(told(job), false);
    if (!job.error->detail.empty())
      logs += fmt::format("{} of {}:\n{}\n", job.operation, job.file, job.error->detail);
  }
  if (failures == 0) return {};
  return fail(
      Stage::kCompile, first->error->code,
      fmt::format("{} of {} kernels do not compile; the others were made", failures, jobs.size()),
      "moejit --verbose build shows what the compiler said; report it", std::move(logs));
}

}  // namespace moejit::cli
