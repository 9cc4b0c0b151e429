// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/interruption.h"

#include <array>
#include <csignal>
#include <cstdlib>

namespace moejit::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

volatile std::sig_atomic_t is_asked = 0;

void ask(int signal) {
  is_asked = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interruption::Interruption() {
  is_asked = 0;
  for (const int signal : kSignals) std::signal(signal, ask);
}

Interruption::~Interruption() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool Interruption::is_requested() const { return is_asked != 0; }

void Interruption::end_process(Terminal& terminal) {
  static_cast<void>(terminal.flush());
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
  std::abort();  // unless SIGINT is blocked, nothing comes here
}

}  // namespace moejit::cli
