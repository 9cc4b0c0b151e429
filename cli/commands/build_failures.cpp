// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_failures.h"

#include "compiler/compiler.h"

#include <fmt/core.h>
#include <string_view>

namespace moejit::cli {
namespace {

// Returns the job's error, worded for the author of the layer.
Error told(const BuildJob& job) {
  Error error = *job.error;
  const BuildSubject& of = job.subjects.front();
  error.message =
      fmt::format("{}: layer \"{}\": {}: {}", of.file, of.name, job.operation, job.error->message);
  if (const std::string_view field = compiler::field_that_fuses(job.source.entry); !field.empty())
    error.hint = fmt::format("set \"{}\": false in {}: other kernels do the same then{}{}", field,
                             of.file, error.hint.empty() ? "" : "; ", error.hint);
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
      logs += fmt::format("{} of {}:\n{}\n", job.operation, job.subjects.front().file,
                          job.error->detail);
  }
  if (failures == 0) return {};
  return fail(
      Stage::kCompile, first->error->code,
      fmt::format("{} of {} kernels do not compile; the others were made", failures, jobs.size()),
      "moejit --verbose build shows what the compiler said; report it", std::move(logs));
}

}  // namespace moejit::cli
