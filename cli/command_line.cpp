// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include "cli/arguments.h"
#include "cli/terminal/terminal.h"

#include <csignal>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace moejit::cli {
namespace {

Error error_of_exception(const std::exception& exception) {
  return {Stage::kCommand, ErrorCode::kInternal,
          std::string("a bug in moejit: ") + exception.what(),
          "report this message with the command line", ""};
}

Result<void> run_guarded(const Action& action, Terminal& terminal) {
  try {
    return action(terminal);
  } catch (const std::bad_alloc&) {
    return fail(Stage::kCommand, ErrorCode::kOutOfMemory, "out of host memory",
                "lower max_tokens, --tokens or the number of local experts");
  } catch (const std::length_error&) {
    return fail(Stage::kCommand, ErrorCode::kOutOfMemory, "out of host memory",
                "lower max_tokens, --tokens or the number of local experts");
  } catch (const std::exception& exception) {
    return tl::make_unexpected(error_of_exception(exception));
  }
}

// Ignores SIGPIPE: if a reader such as `head` closes its end, write() fails with EPIPE instead.
void ignore_broken_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  ignore_broken_pipes();
  Terminal terminal;
  Result<ParsedArguments> parsed = parse_arguments(argc, argv);
  if (!parsed) {
    terminal.report(parsed.error(), false);
    return exit_code_of(parsed.error().code);
  }
  Result<void> result = run_guarded(parsed->action, terminal);
  // Prints results in both cases: a failed check has a table to show.
  const Result<void> flushed = terminal.flush();
  if (result && !flushed) result = flushed;
  if (result) return 0;
  terminal.report(result.error(), parsed->is_verbose);
  return exit_code_of(result.error().code);
}

}  // namespace moejit::cli
