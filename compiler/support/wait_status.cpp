// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/wait_status.h"

#include <cstring>
#include <fmt/core.h>
#include <sys/wait.h>

namespace moejit {

std::string wait_status_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = sigabbrev_np(signal);
  return fmt::format("was ended by signal {} ({})", signal,
                     name != nullptr ? fmt::format("SIG{}", name) : "unknown");
}

}  // namespace moejit
