// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::cli {

// The output that a person or a script sees. Results go to standard output in one piece at the end
// of the command; everything else goes to standard error at once.
class Terminal {
 public:
  // Adds to the results. Control characters become blanks, since anybody may have chosen the names
  // in a text.
  void print(std::string_view text);

  // Writes one line to standard error: "moejit: " and the text, flattened to one line.
  void note(std::string_view text) const;
  void warn(std::string_view text) const;
  // Returns a function that warns. The terminal must live longer.
  std::function<void(std::string_view)> warner() const;

  // Writes the error's sentence and hint to standard error; with `is_verbose` code and detail
  // follow (a compiler's log). The detail of kUsage, a list of commands, follows in any case.
  void report(const Error& error, bool is_verbose) const;

  // Writes the results. A reader that has gone (SIGPIPE) is no error; a full disk is (kFileWrite).
  Result<void> flush();

  // Shows a counter that is redrawn on one line; nothing if standard error is no terminal.
  void show_progress(std::string_view what, int64_t done, int64_t total) const;
  // Shows the counter too, but writes a line each time if standard error is no terminal.
  void report_progress(std::string_view what, int64_t done, int64_t total) const;
  void clear_progress() const;
  // Returns the characters of a line if results go to a terminal; 0: unknown, as for files and
  // pipes.
  int32_t width() const;
  // Returns whether standard error is a terminal.
  bool is_interactive() const;

 private:
  std::string results_;
};

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
