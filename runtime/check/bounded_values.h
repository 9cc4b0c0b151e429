// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/kernel_tensors.h"
#include "runtime/check/operand_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::check {

// Rows [rows, columns] of values that a kernel computes and rounds to bf16: the exact ones, and how
// far a kernel's may be off before it rounds. Pad rows are zeros, without error.
struct BoundedRows {
  int64_t columns = 0;
  std::vector<double> value, bound;
};

// Checks rows that were rounded to bf16 and then quantized with a scale for 128 columns of a row,
// or for all of it: a scale has to be that of an amax, and a code that of a value, within the
// bounds.
void check_rounded_rows(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                        std::string_view role, CheckList& list);

// Checks the same values in an operand of wgrad with a scale for 128 tokens of a column.
void check_rounded_columns(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                           std::string_view role, CheckList& list);

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

// Checks rows that were rounded to bf16 and then quantized with an E8M0 scale for 32 columns of a
// row: a scale has to be that of an amax, and a code that of a value, within the bounds.
void check_group_codes(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list);

// Checks the values of such codes and scales, which are stored in bf16: all of a group have to be
// those of one scale within the bounds.
void check_group_values(const BoundedRows& rows, const KernelTensors& tensors,
                        std::string_view role, CheckList& list);

// Check what two kernels make of values that none of them stores: the largest magnitudes of rows
// and columns, and casts with the scales that follow. A magnitude has to be that of values within
// their bounds, a code that of such a value.

// Checks `output` f32 [P, ceil(columns / 128)] of rows that have halves of `columns` columns: the
// largest magnitudes of both in a block of columns. Rows that are not real are passed over.
void check_segment_amax(const BoundedRows& rows, int64_t columns, const KernelTensors& tensors,
                        CheckList& list);

// Checks a tensor bf16 [C / 128, columns] of the largest magnitudes of 128 tokens of a column.
void check_column_amax(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list);

// Checks the codes of an operand of wgrad whose columns have the scales [E, columns] of another
// role.
void check_scaled_columns(const BoundedRows& rows, const KernelTensors& tensors,
                          std::string_view role, std::string_view scales_role, CheckList& list);

}  // namespace moejit::check
