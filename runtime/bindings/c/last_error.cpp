// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/last_error.h"

#include "compiler/support/exhausted.h"
#include "compiler/support/json_text.h"
#include "compiler/support/plain_text.h"
#include "runtime/bindings/c/error_code.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace moejit::bindings {
namespace {

constexpr moejit_error kSuccess = {
    .code = MOEJIT_OK, .stage = "", .message = "", .hint = "", .detail = ""};
constexpr moejit_error kOutOfMemory = {.code = MOEJIT_ERROR_OUT_OF_MEMORY,
                                       .stage = "load",
                                       .message = "the host has no memory left",
                                       .hint = "",
                                       .detail = ""};

// Replaces a thread's LastError once that is destroyed: exit handlers, static objects and
// destructors of thread-specific data may still call us. From then on errors are codes without a
// text.
thread_local moejit_error error_at_the_end = kSuccess;
thread_local bool is_at_the_end = false;  // neither has a destructor, so both live to the end

struct LastError {
  ~LastError() { is_at_the_end = true; }

  moejit_error view = kSuccess;
  std::string message, hint, detail;  // `view` points to these
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

// Makes `view` the last error. Its strings must be literals or belong to last_error().
moejit_error_code set_view(const moejit_error& view) {
  (is_at_the_end ? error_at_the_end : last_error().view) = view;
  return view.code;
}

moejit_error view_of(const Error& error, const char* message, const char* hint,
                     const char* detail) {
  return {.code = number_of(error.code),
          .stage = to_string(error.stage).data(),  // a literal
          .message = message,
          .hint = hint,
          .detail = detail};
}

// Returns the text as a C string. Errors quote the caller's input, which may be any bytes. Bytes
// that are not UTF-8 become U+FFFD. Control characters become blanks: a zero would end the string,
// and others would command the terminal that shows it.
std::string c_text(const std::string& text) {
  // A JSON string, unlike other JSON values, needs no memory to be destroyed.
  auto valid = nlohmann::json::parse(json_string(text)).get<std::string>();
  return plain_text(std::move(valid));
}

}  // namespace

moejit_error_code set_success() noexcept { return set_view(kSuccess); }

moejit_error_code set_out_of_memory() noexcept { return set_view(kOutOfMemory); }

moejit_error_code set_error(Error error) noexcept {
  if (is_at_the_end)
    return set_view(
        view_of(error, "the thread or the process is ending, so errors have no text", "", ""));
  LastError& last = last_error();
  try {
    last.message = c_text(error.message);
    last.hint = c_text(error.hint);
    last.detail = c_text(error.detail);
  } catch (const std::exception&) {  // can only be a lack of memory
    return set_out_of_memory();
  }
  return set_view(view_of(error, last.message.c_str(), last.hint.c_str(), last.detail.c_str()));
}

moejit_error_code set_exception(Stage stage, const std::exception& exception) noexcept {
  try {
    if (auto error = exhausted(stage, exception)) return set_error(*std::move(error));
    return set_error({stage, ErrorCode::kInternal, exception.what(), {}, {}});
  } catch (const std::exception&) {
    return set_out_of_memory();
  }
}

}  // namespace moejit::bindings

const moejit_error* moejit_last_error(void) {
  namespace bindings = moejit::bindings;
  return bindings::is_at_the_end ? &bindings::error_at_the_end : &bindings::last_error().view;
}
