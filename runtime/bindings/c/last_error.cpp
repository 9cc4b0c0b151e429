// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/last_error.h"

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

struct LastError {
  moejit_error view = kSuccess;
  std::string message, hint, detail;  // what it points to
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

// Errors quote what the caller wrote, which may be anything: bytes that are not UTF-8 become
// U+FFFD, and zeros, which would end the string, blanks.
std::string c_text(const std::string& text) {
  using Json = nlohmann::json;
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  auto valid = Json::parse(json).get<std::string>();
  std::ranges::replace(valid, '\0', ' ');
  return valid;
}

}  // namespace

moejit_error_code set_success() noexcept {
  last_error().view = kSuccess;
  return MOEJIT_OK;
}

moejit_error_code set_out_of_memory() noexcept {
  last_error().view = kOutOfMemory;
  return MOEJIT_ERROR_OUT_OF_MEMORY;
}

moejit_error_code set_error(Error error) noexcept {
  LastError& last = last_error();
  try {
    last.message = c_text(error.message);
    last.hint = c_text(error.hint);
    last.detail = c_text(error.detail);
  } catch (const std::exception&) {  // nothing but memory can be lacking
    return set_out_of_memory();
  }
  last.view = {.code = number_of(error.code),
               .stage = to_string(error.stage).data(),  // of a literal
               .message = last.message.c_str(),
               .hint = last.hint.c_str(),
               .detail = last.detail.c_str()};
  return last.view.code;
}

moejit_error_code set_exception(Stage stage, const std::exception& exception) noexcept {
  try {
    return set_error({stage, ErrorCode::kInternal, exception.what(), {}, {}});
  } catch (const std::exception&) {
    return set_out_of_memory();
  }
}

}  // namespace moejit::bindings

const moejit_error* moejit_last_error(void) { return &moejit::bindings::last_error().view; }
