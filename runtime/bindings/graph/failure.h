// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/moejit.h"

#include <stdexcept>
#include <string>

namespace moejit::graph {

// What functions of bindings throw; what() is "moejit: CODE: MESSAGE", and the hint on a line of
// its own unless it is empty. torch turns it into a RuntimeError; for XLA the handler catches it.
struct Failure : std::runtime_error {
  Failure(moejit_error_code why, const std::string& text) : std::runtime_error(text), code(why) {}
  moejit_error_code code;
};

// Throws a Failure.
[[noreturn]] void fail(moejit_error_code code, const std::string& message,
                       const std::string& hint = "");

// Throws the last error of the thread unless `code` is MOEJIT_OK. `extra_hint` follows its hint.
void check(moejit_error_code code, const std::string& extra_hint = "");

}  // namespace moejit::graph
