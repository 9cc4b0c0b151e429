// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/failure.h"

#include <stdexcept>

namespace moejit::torch {

void fail(moejit_error_code code, const std::string& message, const std::string& hint) {
  std::string text = std::string("moejit: ") + moejit_error_code_name(code) + ": " + message;
  if (!hint.empty()) text += "\nhint: " + hint;
  throw std::runtime_error(text);
}

void check(moejit_error_code code, const std::string& extra_hint) {
  if (code == MOEJIT_OK) return;
  const moejit_error* error = moejit_last_error();
  std::string hint = error->hint;
  if (!extra_hint.empty()) hint += (hint.empty() ? "" : "; ") + extra_hint;
  std::string message = error->message;
  if (*error->detail != '\0') message += std::string("\n") + error->detail;
  fail(error->code, message, hint);
}

void check_torch(Code code, const char* name) {
  if (code == 0) return;
  fail(MOEJIT_ERROR_INTERNAL, std::string("torch's function ") + name + "() failed",
       "torch has printed why; where it has no memory left, free some");
}

}  // namespace moejit::torch
