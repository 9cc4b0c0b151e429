// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <vector>

namespace moejit::testing {

// Rows of each group in most tests of kernels that cast in blocks, and what such kernels write.
inline const std::vector<int32_t> kCastCounts{0, 1, 15, 16, 0, 17, 127, 128, 129, 33, 0};
inline constexpr compiler::CastResult kCastResults[] = {compiler::CastResult::kCodes,
                                                        compiler::CastResult::kValues};

}  // namespace moejit::testing
