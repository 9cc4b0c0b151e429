// SPDX-License-Identifier: Apache-2.0
#pragma once

// Factors of packed weights whose codes become bf16.

#include "moejit_device/gemm/epilogue_scaled.cuh"

namespace moejit::device {

// One factor for each section of a group's B: b_scale_inv [E, sections]. A sum is multiplied with
// kPower times the factor, a power of two.
template <typename Problem, int32_t kPower>
struct SectionFactors {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void apply(const Params& params, const GemmTile& tile, const WarpgroupPart&,
                                  float (&sums)[kW / 2]) {
    const auto factors = ptx::global(params.b_scale_inv) + tile.group * Problem::kSections;
    const float factor = ptx::multiply(ptx::load(factors + tile.section), float{kPower});
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = ptx::multiply(sums[i], factor);
  }
};

}  // namespace moejit::device
