// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/tensor_core_sums.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::check {

// Products whose sums tell rules of addition apart.
struct TensorCoreQuestion {
  std::string_view name;  // "cancel"
  measure::TensorCoreProblems problems;
};

// Returns questions in these formats, each of `problems` products of 64 rows by 8 columns. Numbers
// have all sizes or are near 1, the least, the largest, or not finite. Sums cut what follows, and
// cancel. The same arguments give the same bytes.
std::vector<TensorCoreQuestion> tensor_core_questions(device::ProductFormats formats,
                                                      int64_t problems);

}  // namespace moejit::check
