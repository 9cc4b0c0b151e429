// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// A bit of the status word, as status_bits.h has others: a token of a routing map has more than K
// experts, of which the last ones are not routed.
inline constexpr uint32_t kStatusTooManyExperts = 16u;

}  // namespace moejit::device
