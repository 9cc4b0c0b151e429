// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/layer_results.h"

#include <span>
#include <string_view>

namespace moejit::cli {

// Whether `tensor` F32 [E, a.rows, b.rows] is a * b^T over each expert's columns, with the operands
// "<a>_colwise_q" and "<b>_colwise_q" and one scale for each 128x128 tile. Experts' columns start
// at `offs`. Some rows and columns of every expert where the CPU would take too long.
TensorCheck check_weight_gradient(const LayerResults& results, std::string_view tensor,
                                  std::string_view a, std::string_view b,
                                  std::span<const int32_t> offs);

}  // namespace moejit::cli
