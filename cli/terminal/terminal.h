// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <string>
#include <string_view>

namespace moejit::cli {

// What a person or a script sees. Results go to standard output in one piece at the end of the
// command; everything else goes to standard error at once.
class Terminal {
 public:
  // Adds to the results.
  void print(std::string_view text) { results_ += text; }

  // One line on standard error: "moejit: " and the text, which is flattened to one line.
  void note(std::string_view text) const;
  void warn(std::string_view text) const;

  // The error's sentence and hint on standard error; with `is_verbose` code and detail follow (a
  // compiler's log). The detail of kUsage, a list of commands, follows in any case.
  void report(const Error& error, bool is_verbose) const;

  // Writes the results. A reader that has gone (SIGPIPE) is no error; a full disk is (kFileWrite).
  Result<void> flush();

  // A counter that is drawn again and again on one line; nothing where standard error is no
  // terminal.
  void show_progress(std::string_view what, int64_t done, int64_t total) const;
  // The same, but where standard error is no terminal, a line each time.
  void report_progress(std::string_view what, int64_t done, int64_t total) const;
  void clear_progress() const;
  // Characters of a line where results go to a terminal; 0: nobody knows, as of files and pipes.
  int32_t width() const;
  // Whether standard error is a terminal.
  bool is_interactive() const;

 private:
  std::string results_;
};

}  // namespace moejit::cli
