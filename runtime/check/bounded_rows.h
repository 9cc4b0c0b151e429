// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/cast_operand.h"
#include "runtime/check/kernel_tensors.h"

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

}  // namespace moejit::check
