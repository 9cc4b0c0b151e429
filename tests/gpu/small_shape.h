// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/reference_layer.h"

#include <cstdint>

namespace moejit::testing {

// A layer whose rows do not fill their last scale block, and the tokens of a call of it.
inline constexpr reference::LayerShape kSmallShape{
    .experts = 4, .top_k = 2, .hidden = 144, .intermediate = 128, .alignment = 16, .max_rows = 512};
inline constexpr int64_t kTokensOfSmallCall = 40;

}  // namespace moejit::testing
