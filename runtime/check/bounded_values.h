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

// Rows [rows, columns] of exact values, and how far a kernel's values may be off before it rounds
// them to bf16. Pad rows are zeros, without error.
struct BoundedRows {
  int64_t columns = 0;
  std::vector<double> value, bound;
};

// Checks rows that were rounded to bf16 and then quantized, with a scale for 128 columns of a row
// or for all of it. A scale passes if an amax within the bounds has it, a code if a value within
// the bounds has it.
void check_rounded_rows(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                        std::string_view role, CheckList& list);

// Checks the same values in an operand of wgrad, which has a scale for 128 tokens of a column.
void check_rounded_columns(const BoundedRows& rows, float epsilon, const KernelTensors& tensors,
                           std::string_view role, CheckList& list);

// What checks say if every code and scale is right for some value within the bounds.
inline constexpr const char* kWithinBounds = "within the bounds of the values";

// Returns a value as a kernel rounds it to bf16 before it is quantized.
float rounded(double value);

// Returns how far a kernel's value of element `at` may be off before it is rounded to bf16. This
// includes the rounding of doubles to floats.
double bound_at(const BoundedRows& rows, size_t at);

// The smallest and the largest amax that elements within their bounds may have, and the amax of the
// exact elements. All are rounded to bf16.
struct AmaxBounds {
  float least = 0.0F, most = 0.0F, exact = 0.0F;

  // Takes element `at` in; a NaN is ignored.
  void add(const BoundedRows& rows, size_t at);
};

// Returns the rank of an e4m3 code when all codes are ordered by their values; -0 counts as 0.
inline int order_of(uint8_t code) { return (code & 0x80) != 0 ? -(code & 0x7F) : code; }

// Returns whether element `at` may have this code. code_of(value) returns the code of a value.
template <typename CodeOf>
bool may_have_code(const BoundedRows& rows, size_t at, uint8_t code, const CodeOf& code_of) {
  const double value = rows.value[at], bound = bound_at(rows, at);
  if (std::isnan(value) || code == 0x7F) return code == code_of(value);
  return order_of(code_of(value - bound)) <= order_of(code) &&
         order_of(code) <= order_of(code_of(value + bound));
}

// Checks rows that were rounded to bf16 and then quantized with an E8M0 scale for 32 columns of a
// row. A scale passes if an amax within the bounds has it, a code if a value within the bounds has
// it.
void check_group_codes(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list);

// Checks values that a kernel recovered from such codes and scales and stored in bf16. All values
// of a group must come from one scale within the bounds.
void check_group_values(const BoundedRows& rows, const KernelTensors& tensors,
                        std::string_view role, CheckList& list);

// The next three functions check what two kernels make of values that neither stores. One kernel
// makes the largest magnitudes of rows and columns, the other casts with the scales that follow
// from them. A magnitude or code passes if values within their bounds have it.

// Checks `output` f32 [P, ceil(columns / 128)] of rows that have two halves of `columns` columns.
// An element is the largest magnitude of both halves in a block of columns. Rows that are not real
// are skipped.
void check_segment_amax(const BoundedRows& rows, int64_t columns, const KernelTensors& tensors,
                        CheckList& list);

// Checks a tensor bf16 [C / 128, columns]: the largest magnitudes of 128 tokens of a column.
void check_column_amax(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list);

// Checks the codes of an operand of wgrad whose columns have the scales [E, columns] of
// `scales_role`.
void check_scaled_columns(const BoundedRows& rows, const KernelTensors& tensors,
                          std::string_view role, std::string_view scales_role, CheckList& list);

}  // namespace moejit::check
