// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <exception>
#include <optional>
#include <string>

namespace moejit {

// Returns what to raise if a call of the system failed for lack of something; empty if the errno
// says nothing of that kind.
std::string hint_for_errno(int error);

// Returns the error for an exception of the standard library that says that something ran out:
// memory, or threads. None for all others, which are bugs.
std::optional<Error> exhausted(Stage stage, const std::exception& exception);

}  // namespace moejit
