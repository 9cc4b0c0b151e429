// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/bounded_rows.h"

#include <string_view>

namespace moejit::check {

// Checks rows that were rounded to bf16 and then quantized with an E8M0 scale for 32 columns of a
// row: a scale has to be that of an amax, and a code that of a value, within the bounds.
void check_group_codes(const BoundedRows& rows, const KernelTensors& tensors, std::string_view role,
                       CheckList& list);

// Checks the values of such codes and scales, which are stored in bf16: all of a group have to be
// those of one scale within the bounds.
void check_group_values(const BoundedRows& rows, const KernelTensors& tensors,
                        std::string_view role, CheckList& list);

}  // namespace moejit::check
