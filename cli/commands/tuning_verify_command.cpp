// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tuning_commands.h"
#include "cli/report/verify_report.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::cli {
namespace {

constexpr std::string_view kVerifyWithoutGpu =
    "without a GPU, moejit tuning show tells what is in a record, and --target sim tries the "
    "command";

Result<tune::Verification> verify(const TuningVerifyCommand& command,
                                  tune::TuneObserver& observer) {
  if (command.subjects.layers.empty() && command.subjects.gemms.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted layer descriptions or --gemms FILE beside the record",
                "an entry names its problem, and running it takes a layer or case that has it");
  MOEJIT_TRY_ASSIGN(const tune::MeasureOptions options,
                    measure_options(command.subjects, kVerifyWithoutGpu));
  MOEJIT_TRY_ASSIGN(const compiler::TuningRecord record, compiler::read_tuning(command.record));
  MOEJIT_TRY_ASSIGN(tune::TuneSubjects subjects, read_subjects(command.subjects));
  return tune::verify_record(record, command.record, std::move(subjects), options, command.sample,
                             observer);
}

}  // namespace

Result<void> run_tuning_verify(const TuningVerifyCommand& command, Terminal& terminal) {
  std::optional<int> signal;
  const auto verified = [&] {
    TerminalTuneObserver observer(terminal);
    auto result = verify(command, observer);
    signal = observer.signal();
    return result;
  };
  MOEJIT_TRY_ASSIGN(const tune::Verification found, verified());
  terminal.print(command.is_json ? verification_json(found) : verification_text(found));
  if (found.failure) return tl::make_unexpected(*found.failure);
  if (signal) Interruption::end_process(terminal, *signal);
  const auto failed =
      std::ssize(found.entries) -
      std::ranges::count(found.entries, tune::Verdict::kHolds, &tune::VerifiedEntry::verdict);
  if (failed == 0) return {};
  return fail(Stage::kLaunch, ErrorCode::kTuningOutdated,
              fmt::format("{} of {} entries of {} were not found to hold", failed,
                          found.entries.size(), command.record),
              "moejit tune measures them anew: --output with the same record replaces them");
}

}  // namespace moejit::cli
