// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/moejit.h"
#include "runtime/bindings/torch/torch_functions.h"

#include <string>

namespace moejit::torch {

// Throws an exception that torch turns into a RuntimeError: "moejit: CODE: MESSAGE", and the hint
// on a line of its own unless it is empty. Operators may throw; nothing else of this library does.
[[noreturn]] void fail(moejit_error_code code, const std::string& message,
                       const std::string& hint = "");

// Throws the last error of the thread unless `code` is MOEJIT_OK. `extra_hint` follows its hint.
void check(moejit_error_code code, const std::string& extra_hint = "");

// Throws if the function `name` of torch failed.
void check_torch(Code code, const char* name);

}  // namespace moejit::torch
