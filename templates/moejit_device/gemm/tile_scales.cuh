// SPDX-License-Identifier: Apache-2.0
#pragma once

// One scale for each 128x128 tile of both operands, as a scaling-aware transpose leaves them: the
// partial sums of a step have one factor, or two where the columns reach into B's next tile.
// Fetched and handed out as in RowBlockScales.

#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class TileScales {
  static constexpr int32_t kBlocksB = ceil_div(Problem::kN, 128);

 public:
  template <typename Params>
  MOEJIT_DEVICE explicit TileScales(const Params& params)
      : a_scale_(ptx::global(params.a_scale_inv)),
        b_scale_(ptx::global(params.b_scale_inv)),
        pitch_(static_cast<int32_t>(params.columns / 128)) {}

  // Brings a tile's first batch: of the first tile, and of each that follows one without steps.
  MOEJIT_DEVICE void prime(const GemmTile& tile) {
    look_at(tile);
    fetch();
    advance();
  }

  // Before the batches of each tile.
  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart& part) {
    // Columns of the part from here on are in B's next tile.
    split_ = 128 - tile.column % 128 - part.column;
  }

  // Starts the fetch of the next batch: where this one is the tile's last, of the tile that follows
  // in the queue.
  template <typename Queue>
  MOEJIT_DEVICE void fetch_next(bool is_last, const Queue& queue) {
    if (is_last) {
      look_at(queue.following());
    } else {
      a_at_ += 4;
      b_at_ += 4;
      left_ -= 4;
    }
    fetch();
  }

  // The batch that was fetched becomes the present one.
  MOEJIT_DEVICE void advance() {
    product_[0] = ptx::multiply(a_, b_[0]);
    product_[1] = ptx::multiply(a_, b_[1]);
  }

  // Of step `i` of the batch.
  template <int32_t kW>
  MOEJIT_DEVICE ScaleFactors<kW> factors(int32_t i) const {
    const int32_t source = (ptx::lane_index() & ~3) + i;
    const float low = ptx::shuffle(product_[0], source);
    const float high = ptx::shuffle(product_[1], source);
    ScaleFactors<kW> factors;
#pragma unroll
    for (int32_t unit = 0; unit < kW / ScaleFactors<kW>::kUnit; ++unit) {
      const float factor = unit * ScaleFactors<kW>::kUnit < split_ ? low : high;
      factors.value[0][unit] = factor;
      factors.value[1][unit] = factor;
    }
    return factors;
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ScaleFactors<kW>& factors, float (&sums)[kW / 2]) {
    promote_scaled<kW>(partial, factors, sums);
  }

 private:
  // Where the scales of a tile's first batch are.
  MOEJIT_DEVICE void look_at(const GemmTile& tile) {
    const int32_t step = ptx::lane_index() % 4;
    const int32_t block = tile.column / 128;
    a_at_ = tile.a_row / 128 * pitch_ + tile.k_begin / 128 + step;
    b_at_ = block * pitch_ + tile.k_begin / 128 + step;
    next_b_ = block + 1 < kBlocksB ? pitch_ : 0;
    left_ = tile.k_steps - step;
  }

  MOEJIT_DEVICE void fetch() {
    const bool exists = left_ > 0;
    a_ = exists ? ptx::load(a_scale_ + a_at_) : 0.0f;
    b_[0] = exists ? ptx::load(b_scale_ + b_at_) : 0.0f;
    b_[1] = exists ? ptx::load(b_scale_ + (b_at_ + next_b_)) : 0.0f;
  }

  ptx::GlobalPtr<const float> a_scale_;
  ptx::GlobalPtr<const float> b_scale_;
  int32_t pitch_;  // scales of a row of tiles
  int32_t a_at_;   // element of this lane in the batch that is being fetched
  int32_t b_at_;
  int32_t next_b_;  // to B's next row of tiles, if there is one
  int32_t left_;    // steps of the tile from this lane's on
  int32_t split_;
  float a_;           // being fetched
  float b_[2];        // of the tile's first and second block of columns
  float product_[2];  // of this batch
};

}  // namespace moejit::device
