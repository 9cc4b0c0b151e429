// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/terminal.h"

#include "compiler/support/file.h"
#include "compiler/support/plain_text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fmt/core.h>
#include <span>
#include <sys/ioctl.h>
#include <unistd.h>

namespace moejit::cli {
namespace {

// Writes to standard error. Ignores failures, since nothing is left to report them to.
void write_stderr(std::string_view text) {
  write_all(STDERR_FILENO, std::as_bytes(std::span(text.data(), text.size())));
}

// Returns the text on one line; paths and names may have line breaks.
std::string one_line(std::string_view text) {
  std::string line = plain_text(std::string(text));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

constexpr std::array kSignals = {SIGINT, SIGTERM};

volatile std::sig_atomic_t asked_by = 0;

void ask(int signal) {
  asked_by = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void Terminal::note(std::string_view text) const {
  write_stderr(fmt::format("moejit: {}\n", one_line(text)));
}

void Terminal::warn(std::string_view text) const {
  write_stderr(fmt::format("moejit: warning: {}\n", one_line(text)));
}

std::function<void(std::string_view)> Terminal::warner() const {
  return [this](std::string_view text) { warn(text); };
}

void Terminal::report(const Error& error, bool is_verbose) const {
  std::string text = fmt::format("moejit: {}\n", one_line(error.message));
  if (!error.hint.empty()) text += fmt::format("hint: {}\n", one_line(error.hint));
  if (is_verbose)
    text += fmt::format("code: {} ({})\n", to_string(error.code), to_string(error.stage));
  // The detail of a misused command is short: it lists the commands.
  if (!error.detail.empty() && (is_verbose || error.code == ErrorCode::kUsage)) {
    text += plain_text(error.detail);
    if (!error.detail.ends_with('\n')) text += '\n';
  }
  write_stderr(text);
}

void Terminal::print(std::string_view text) { results_ += plain_text(std::string(text)); }

Result<void> Terminal::flush() {
  const int error =
      write_all(STDOUT_FILENO, std::as_bytes(std::span(results_.data(), results_.size())));
  results_.clear();
  if (error == 0 || error == EPIPE) return {};
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write to standard output: {}", errno_text(error)));
}

int32_t Terminal::width() const {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

bool Terminal::is_interactive() const { return ::isatty(STDERR_FILENO) != 0; }

void Terminal::show_progress(std::string_view what, int64_t done, int64_t total) const {
  if (!is_interactive() || total <= 0) return;
  constexpr int64_t kWidth = 30;
  const int64_t filled = kWidth * done / total;
  write_stderr(fmt::format("\r\x1b[K[{:#<{}}{:.<{}}] {}/{} {}", "", filled, "", kWidth - filled,
                           done, total, one_line(what)));
}

void Terminal::report_progress(std::string_view what, int64_t done, int64_t total) const {
  if (is_interactive())
    show_progress(what, done, total);
  else
    note(fmt::format("{}/{} {}", done, total, what));
}

void Terminal::clear_progress() const {
  if (is_interactive()) write_stderr("\r\x1b[K");
}

Interruption::Interruption() {
  asked_by = 0;
  for (const int signal : kSignals) std::signal(signal, ask);
}

Interruption::~Interruption() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

std::optional<int> Interruption::signal() const {
  return asked_by == 0 ? std::nullopt : std::optional<int>(asked_by);
}

void Interruption::end_process(Terminal& terminal, int signal) {
  static_cast<void>(terminal.flush());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();  // unless the signal is blocked, nothing comes here
}

}  // namespace moejit::cli
