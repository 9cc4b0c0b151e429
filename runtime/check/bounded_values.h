// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/bounded_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace moejit::check {

// What checks say of codes and scales that some value within the bounds has.
inline constexpr const char* kWithinBounds = "within the bounds of the values";

// Returns a value as a kernel rounds it to bf16 before it is quantized.
float rounded(double value);

// Returns how far a kernel's value of element `at` may be off, with the rounding of doubles to
// floats, which comes before that to bf16.
double bound_at(const BoundedRows& rows, size_t at);

// The smallest and the largest amax that elements within their bounds may have, and that of the
// exact ones, all rounded to bf16.
struct AmaxBounds {
  float least = 0.0F, most = 0.0F, exact = 0.0F;

  // Takes element `at` in; NaN counts as nothing.
  void add(const BoundedRows& rows, size_t at);
};

// Returns the place of an e4m3 code among all, ordered by their values; -0 is 0.
inline int order_of(uint8_t code) { return (code & 0x80) != 0 ? -(code & 0x7F) : code; }

// Returns whether element `at` may have this code. code_of(value) is the code of a value.
template <typename CodeOf>
bool may_have_code(const BoundedRows& rows, size_t at, uint8_t code, const CodeOf& code_of) {
  const double value = rows.value[at], bound = bound_at(rows, at);
  if (std::isnan(value) || code == 0x7F) return code == code_of(value);
  return order_of(code_of(value - bound)) <= order_of(code) &&
         order_of(code) <= order_of(code_of(value + bound));
}

}  // namespace moejit::check
