// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Bits of the status word that kernels set and callers read; never cleared by a kernel.
inline constexpr uint32_t kStatusBadExpertId = 1u;  // an id below -1 or >= E, row not routed
inline constexpr uint32_t kStatusRowOverflow = 2u;  // more rows than P, the rest dropped
inline constexpr uint32_t kStatusBadScale = 4u;     // transpose: neither a power of two nor 0;
                                                    // weight_pack: no e4m3 codes have the values
inline constexpr uint32_t kStatusOtherTokens = 8u;  // a backward call's T is not its forward call's

// Bits of the status word of a group. Rank r, the first that a wait ended without, has the bit
// kStatusFirstRank << r.
inline constexpr uint32_t kStatusSilentRank = 256u;   // a peer was not heard of in time
inline constexpr uint32_t kStatusFirstRank = 65536u;  // and which

}  // namespace moejit::device
