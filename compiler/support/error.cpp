// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/error.h"

#include <fmt/core.h>

namespace moejit {

std::string_view to_string(Stage stage) {
  switch (stage) {
    case Stage::kParse: return "parse";
    case Stage::kPlan: return "plan";
    case Stage::kEmit: return "emit";
    case Stage::kCompile: return "compile";
    case Stage::kCache: return "cache";
    case Stage::kLoad: return "load";
    case Stage::kLaunch: return "launch";
    case Stage::kFile: return "file";
    case Stage::kCommand: return "command";
  }
  return "unknown";
}

std::string_view to_string(ErrorCode code) {
  switch (code) {
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) \
  case ErrorCode::enumerator:                                   \
    return name;
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
  }
  return "unknown";
}

int exit_code_of(ErrorCode code) {
  switch (code) {
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) \
  case ErrorCode::enumerator:                                   \
    return exit_code;
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
  }
  return 70;
}

std::string to_string(const Error& error) {
  std::string text = fmt::format("{} error [{}]: {}", to_string(error.stage), to_string(error.code),
                                 error.message);
  if (!error.hint.empty()) text += fmt::format("\nhint: {}", error.hint);
  if (!error.detail.empty()) text += fmt::format("\n{}", error.detail);
  return text;
}

}  // namespace moejit
