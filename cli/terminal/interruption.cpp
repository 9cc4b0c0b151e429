// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/interruption.h"

#include <array>
#include <csignal>
#include <cstdlib>

namespace moejit::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

volatile std::sig_atomic_t asked_by = 0;

void ask(int signal) {
  asked_by = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

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
