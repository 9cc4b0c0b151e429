// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"

#include <optional>

namespace moejit::cli {

// While it lives, the first Ctrl-C (SIGINT) or SIGTERM only asks the command to stop; the second
// one ends the process at once. A process has one at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool is_requested() const { return signal().has_value(); }
  // Returns the signal that asked.
  std::optional<int> signal() const;

  // Writes the results and ends the process by the signal, so that a shell sees status 130 or 143.
  [[noreturn]] static void end_process(Terminal& terminal, int signal);
};

}  // namespace moejit::cli
