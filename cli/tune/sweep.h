// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "cli/terminal/terminal.h"

#include <optional>
#include <string>

namespace moejit::cli {

// How a sweep that had no error came to its end.
struct SweepEnd {
  std::string note;           // why it ended early: "interrupted"; empty if it did not
  std::optional<int> signal;  // that interrupted it
};

// Measures what the command names and writes all of it to the journal, to which a sweep that goes
// on appends. Kernels run in a process of their own. Errors: those of the files, of opening the
// device, and of a device that no longer works; the journal then has what was measured before.
Result<SweepEnd> sweep(const TuneCommand& command, const std::string& journal_path,
                       Terminal& terminal);

}  // namespace moejit::cli
