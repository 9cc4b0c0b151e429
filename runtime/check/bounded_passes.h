// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/bounded_rows.h"

#include <string_view>

namespace moejit::check {

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
