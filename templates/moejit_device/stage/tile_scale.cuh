// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which scale a tile of weights has. of() is called by all threads of a CTA, with what gives each
// one's largest magnitude; it passes a barrier.

#include "moejit_device/cast/raise_amax.cuh"
#include "moejit_device/core/numeric.cuh"
#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

// A scale of its own, a power of two, which is stored.
template <uint32_t kEpsilonBits>
struct ScaleOfTile {
  static constexpr bool kIsStored = true;

  template <int32_t kWarps, typename Magnitude>
  MOEJIT_DEVICE static BlockScale of(const TileChainParams&, int64_t, ptx::SharedPtr<float> slots,
                                     const Magnitude& magnitude) {
    return e4m3_scale_from_amax<kEpsilonBits>(max_of_cta<kWarps>(slots, magnitude()));
  }
};

// The scale of its matrix, which is known beforehand: expert_scales [matrices].
struct ScaleOfMatrix {
  static constexpr bool kIsStored = false;

  template <int32_t kWarps, typename Magnitude>
  MOEJIT_DEVICE static BlockScale of(const TileChainParams& params, int64_t matrix,
                                     ptx::SharedPtr<float>, const Magnitude&) {
    ptx::sync_cta();
    return {.scale = ptx::load(ptx::global(params.expert_scales) + matrix), .scale_inv = 0.0f};
  }
};

// Gives a tile the scale of its matrix, too, and raises the matrix's column of a state to the
// tile's largest magnitude: amax [columns], for the scale of a later step.
template <int32_t kStride, int32_t kFirst>
struct ScaleOfMatrixRecorded {
  static constexpr bool kIsStored = false;

  template <int32_t kWarps, typename Magnitude>
  MOEJIT_DEVICE static BlockScale of(const TileChainParams& params, int64_t matrix,
                                     ptx::SharedPtr<float> slots, const Magnitude& magnitude) {
    const float amax = max_of_cta<kWarps>(slots, magnitude());
    if (ptx::thread_index() == 0) {
      ColumnOfExpert<kStride, kFirst>::raise(params.amax, matrix, amax);
    }
    return {.scale = ptx::load(ptx::global(params.expert_scales) + matrix), .scale_inv = 0.0f};
  }
};

}  // namespace moejit::device
