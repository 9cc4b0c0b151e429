// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/failure.h"

namespace moejit::graph {

void fail(moejit_error_code code, const std::string& message, const std::string& hint) {
  std::string text = std::string("moejit: ") + moejit_error_code_name(code) + ": " + message;
  if (!hint.empty()) text += "\nhint: " + hint;
  throw Failure(code, text);
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

}  // namespace moejit::graph
