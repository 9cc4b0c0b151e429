// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace moejit {

// Returns how a process ended by its status from waitpid(): "ended with exit status 1", "was ended
// by signal 11 (SIGSEGV)".
std::string wait_status_text(int status);

}  // namespace moejit
