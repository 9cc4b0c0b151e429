// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/support/floating_point.h"
#include "runtime/bindings/c/moejit.h"

#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace moejit::bindings {

// Set the last error of the calling thread, and return its code.
moejit_error_code set_success() noexcept;
moejit_error_code set_error(Error error) noexcept;
moejit_error_code set_out_of_memory() noexcept;
moejit_error_code set_exception(Stage stage, const std::exception& exception) noexcept;

// Runs the body of a function of the C interface, which returns a Result<void>. In the library only
// the standard library throws, for lack of memory. No exception leaves this function.
template <typename Body>
moejit_error_code guarded(Stage stage, Body&& body) noexcept {
  // Floating-point modes of the host's thread would change numbers of descriptions, and thereby
  // kernels.
  const DefaultFloatingPoint modes;
  try {
    Result<void> result = body();
    return result ? set_success() : set_error(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return set_out_of_memory();
  } catch (const std::exception& exception) {
    return set_exception(stage, exception);
  }
}

// Returns the error for a pointer that the caller has to give: "engine of moejit_layer_prepare() is
// NULL".
inline tl::unexpected<Error> null_argument(Stage stage, std::string_view argument,
                                           std::string_view function) {
  return fail(stage, ErrorCode::kInvalidValue,
              std::string(argument).append(" of ").append(function).append("() is NULL"));
}

// Runs the body of a function that writes to `wanted` what a plan tells, unless one of them is
// NULL.
template <typename Wanted, typename Body>
moejit_error_code tell(const moejit_plan* plan, Wanted* wanted, const char* argument,
                       const char* function, Body&& body) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (plan == nullptr) return null_argument(Stage::kPlan, "plan", function);
    if (wanted == nullptr) return null_argument(Stage::kPlan, argument, function);
    return body();
  });
}

}  // namespace moejit::bindings
