// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include "cli/arguments.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/exhausted.h"
#include "compiler/support/file.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

namespace moejit::cli {
namespace {

Error error_of_exception(const std::exception& exception) {
  if (auto error = exhausted(Stage::kCommand, exception)) {
    if (error->hint.empty())
      error->hint = "lower max_tokens, --tokens or the number of local experts";
    return *std::move(error);
  }
  return {Stage::kCommand, ErrorCode::kInternal,
          std::string("a bug in moejit: ") + exception.what(),
          "report this message with the command line", ""};
}

Result<void> run_guarded(int argc, const char* const* argv, Terminal& terminal, bool& is_verbose) {
  try {
    MOEJIT_TRY_ASSIGN(const ParsedArguments parsed, parse_arguments(argc, argv));
    is_verbose = parsed.is_verbose;
    return parsed.action(terminal);
  } catch (const std::exception& exception) {
    return tl::make_unexpected(error_of_exception(exception));
  }
}

// Makes write() fail instead of ending the process. It fails if a reader such as `head` closes its
// end (EPIPE), or if a file becomes larger than the user's limit (EFBIG).
void ignore_signals_of_writing() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);
}

[[noreturn]] void end_without_memory() {
  constexpr std::string_view kText = "moejit: the host has no memory left\n";
  write_all(STDERR_FILENO, std::as_bytes(std::span(kText)));
  ::_exit(exit_code_of(ErrorCode::kOutOfMemory));
}

// Ends the process if memory runs out in a library that promised to throw nothing, such as the one
// that reads the command line.
void end_at_terminate() {
  try {
    if (const std::exception_ptr exception = std::current_exception())
      std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
  }
  std::abort();
}

int run(int argc, const char* const* argv) {
  Terminal terminal;
  bool is_verbose = false;
  Result<void> result = run_guarded(argc, argv, terminal, is_verbose);
  // Prints results in both cases: a failed check has a table to show.
  const Result<void> flushed = terminal.flush();
  if (result && !flushed) result = flushed;
  if (result) return 0;
  terminal.report(result.error(), is_verbose);
  return exit_code_of(result.error().code);
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  ignore_signals_of_writing();
  std::set_terminate(end_at_terminate);
  try {
    return run(argc, argv);
  } catch (const std::exception&) {  // without memory even for the report
    end_without_memory();
  }
}

}  // namespace moejit::cli
