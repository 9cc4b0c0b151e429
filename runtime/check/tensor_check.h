// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/activation.h"
#include "runtime/reference/compare.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::check {

// How one tensor compares with the CPU reference.
struct TensorCheck {
  std::string tensor;
  bool has_passed = false;
  std::string verdict;  // "exact", "within one code", "0.12 of the bound", "3 of 96 differ"
  std::string message;  // where the first difference is; empty if the check has passed
  int64_t compared = 0;
  int64_t differing = 0;
};

// Returns the check of a comparison. `verdict` is the check's verdict if nothing differs.
TensorCheck check_of(std::string_view tensor, const testing::Comparison& comparison,
                     std::string verdict = "exact");

// Returns the check of a comparison with bounds, with a verdict such as "0.12 of the bound".
TensorCheck check_within(std::string_view tensor, const testing::Comparison& comparison);

// Returns the check of a tensor that holds one number.
TensorCheck check_number(std::string_view tensor, int64_t got, int64_t wanted);

// Returns what follows the verdict if only some elements were compared: " (512 of 4096 rows)".
// Empty if all were compared.
std::string sampled_text(int64_t compared, int64_t all, std::string_view what);

// Compares rows `codes` and their `scales` with what the reference makes of `values` [rows,
// got.cols], to within one code. The values went through an approximate function: a kernel's
// sigmoid may be up to 2^-17 off. If the largest magnitude of a block is within 2^-20 of a step of
// the scale, the device's choice of the scale is accepted. `sharing` blocks of a row share each
// scale.
std::vector<TensorCheck> check_quantized(std::string_view codes, std::string_view scales,
                                         std::span<const float> values,
                                         const reference::Route& route, int64_t sharing,
                                         const reference::QuantizedRows& got);

}  // namespace moejit::check
