// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace moejit {

// Where in the flow a failure happened.
enum class Stage { kParse, kPlan, kEmit, kCompile, kCache, kLoad, kLaunch, kFile, kCommand };

enum class ErrorCode {
#define MOEJIT_ERROR_CODE(enumerator, name, exit_code, meaning) enumerator,
#include "compiler/support/error_codes.inc"
#undef MOEJIT_ERROR_CODE
};

// One failure, described so that its reader can act. `message` is one sentence that names what is
// wrong, where (JSON path, tensor, file), what was got and what was wanted. `hint` says what to do
// (may be empty). `detail` holds long material such as a compiler log (may be empty).
struct Error {
  Stage stage;
  ErrorCode code;
  std::string message;
  std::string hint;
  std::string detail;
};

// Either a value or an Error. The library returns this instead of throwing or printing.
template <typename T>
using Result = tl::expected<T, Error>;

std::string_view to_string(Stage stage);
std::string_view to_string(ErrorCode code);

// Returns the exit status of the command line tool for this code; see docs/errors.md.
int exit_code_of(ErrorCode code);

// Returns "parse error [unknown_key]: ..." plus "hint: ..." and the detail on lines of their own.
std::string to_string(const Error& error);

inline tl::unexpected<Error> fail(Stage stage, ErrorCode code, std::string message,
                                  std::string hint = {}, std::string detail = {}) {
  return tl::make_unexpected(
      Error{stage, code, std::move(message), std::move(hint), std::move(detail)});
}

}  // namespace moejit

#define MOEJIT_CONCAT_INNER(a, b) a##b
#define MOEJIT_CONCAT(a, b) MOEJIT_CONCAT_INNER(a, b)

// Returns the error of a Result<...> expression from the enclosing function, if it holds one.
#define MOEJIT_TRY(expression)                                                                \
  do {                                                                                        \
    auto&& moejit_try_result = (expression);                                                  \
    if (!moejit_try_result) return tl::make_unexpected(std::move(moejit_try_result).error()); \
  } while (false)

// MOEJIT_TRY_ASSIGN(auto value, expression) assigns the value, or returns the error from the
// enclosing function.
#define MOEJIT_TRY_ASSIGN(target, expression) \
  MOEJIT_TRY_ASSIGN_INNER(MOEJIT_CONCAT(moejit_try_result_, __LINE__), target, expression)
#define MOEJIT_TRY_ASSIGN_INNER(result, target, expression)           \
  auto result = (expression);                                         \
  if (!result) return tl::make_unexpected(std::move(result).error()); \
  target = std::move(*result)
