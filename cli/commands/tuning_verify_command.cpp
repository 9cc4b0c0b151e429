// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/terminal/interruption.h"
#include "cli/tune/verify_report.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cli {

Result<void> run_tuning_verify(const TuningVerifyCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const Verification found, verify_record(command, terminal));
  terminal.print(command.is_json ? verification_json(found) : verification_text(found));
  if (found.failure) return tl::make_unexpected(*found.failure);
  if (found.signal) Interruption::end_process(terminal, *found.signal);
  const auto failed = std::ssize(found.entries) -
                      std::ranges::count(found.entries, Verdict::kHolds, &VerifiedEntry::verdict);
  if (failed == 0) return {};
  return fail(Stage::kLaunch, ErrorCode::kTuningOutdated,
              fmt::format("{} of {} entries of {} were not found to hold", failed,
                          found.entries.size(), command.record),
              "moejit tune measures them anew: --output with the same record replaces them");
}

}  // namespace moejit::cli
