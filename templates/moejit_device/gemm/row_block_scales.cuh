// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B, which is constant for all rows of
// a tile and changes at most once in its columns: within a section, or from one to the next.
//
// A load in the serial chain of the main loop costs the latency of L2 in every step, so values are
// fetched into registers a batch of four steps ahead: of the four lanes that share two rows each
// holds one step. Shuffles hand the products out just before the tensor cores start. During a
// tile's last batch the next tile's first is on its way.

#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class RowBlockScales {
  static constexpr int32_t kSectionRows = ceil_div(Problem::kSectionN, 128);
  static constexpr int32_t kScaleRows = Problem::kSections * kSectionRows;  // of a group's B
  static constexpr int32_t kSteps = Problem::kSteps;
  // From the tile's first block of B to its second.
  static constexpr int32_t kBlockDistance = Shape::kTileSections == 1 ? 1 : kSectionRows;

 public:
  template <typename Params>
  MOEJIT_DEVICE explicit RowBlockScales(const Params& params)
      : a_scale_(ptx::global(params.a_scale_inv)), b_scale_(ptx::global(params.b_scale_inv)) {}

  // Brings a tile's first batch: of the first tile, and of each that follows one without steps.
  MOEJIT_DEVICE void prime(const GemmTile& tile) {
    look_at(tile);
    fetch();
    advance();
  }

  // Before the batches of each tile.
  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart& part) {
    // Columns of the part from here on are in B's next block of 128.
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
      step_ += 4;
    }
    fetch();
  }

  // The batch that was fetched becomes the present one.
  MOEJIT_DEVICE void advance() {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) product_[i / 2][i % 2] = ptx::multiply(a_[i / 2], b_[i % 2]);
  }

  // Of step `i` of the batch.
  template <int32_t kW>
  MOEJIT_DEVICE ScaleFactors<kW> factors(int32_t i) const {
    const int32_t source = (ptx::lane_index() & ~3) + i;
    ScaleFactors<kW> factors;
#pragma unroll
    for (int32_t row = 0; row < 2; ++row) {
      const float low = ptx::shuffle(product_[row][0], source);
      const float high = ptx::shuffle(product_[row][1], source);
#pragma unroll
      for (int32_t unit = 0; unit < kW / ScaleFactors<kW>::kUnit; ++unit) {
        factors.value[row][unit] = unit * ScaleFactors<kW>::kUnit < split_ ? low : high;
      }
    }
    return factors;
  }

  // The same for a tile with two sections, of the columns of one, which are one block.
  template <int32_t kW, int32_t kSection>
  MOEJIT_DEVICE ScaleFactors<kW> section_factors(int32_t i) const {
    const int32_t source = (ptx::lane_index() & ~3) + i;
    ScaleFactors<kW> factors;
#pragma unroll
    for (int32_t row = 0; row < 2; ++row) {
      const float factor = ptx::shuffle(product_[row][kSection], source);
#pragma unroll
      for (int32_t unit = 0; unit < kW / ScaleFactors<kW>::kUnit; ++unit) {
        factors.value[row][unit] = factor;
      }
    }
    return factors;
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ScaleFactors<kW>& factors, float* sums) {
    promote_scaled<kW>(partial, factors, sums);
  }

 private:
  // Where the scales of a tile's first batch are. Pad rows have none.
  MOEJIT_DEVICE void look_at(const GemmTile& tile) {
    const int32_t lane = ptx::lane_index();
    const int32_t row =
        Shape::part(tile, ptx::warp_index() / 4).row + ptx::warp_index() % 4 * 16 + lane / 4;
    const int32_t block = tile.column / 128;
    const int32_t b_row = tile.group * kScaleRows + tile.section * kSectionRows + block;
    const bool has_steps = tile.k_steps > 0;
    step_ = lane % 4;
    a_at_ = static_cast<uint32_t>(tile.a_row + row) * kSteps + step_;
    b_at_ = static_cast<uint32_t>(b_row) * kSteps + step_;
    exists_ =
        (row < tile.rows ? kFirstRow : 0) | (row + 8 < tile.rows ? kSecondRow : 0) |
        (has_steps ? kFirstBlock : 0) |
        (has_steps && (Shape::kTileSections == 2 || block + 1 < kSectionRows) ? kSecondBlock : 0);
  }

  MOEJIT_DEVICE void fetch() {
    // The last batch may end before its fourth step.
    const int32_t exists = kSteps % 4 == 0 || step_ < kSteps ? exists_ : 0;
    const auto a = a_scale_ + static_cast<int64_t>(a_at_);
    const auto b = b_scale_ + static_cast<int64_t>(b_at_);
    a_[0] = (exists & kFirstRow) != 0 ? ptx::load(a) : 0.0f;
    a_[1] = (exists & kSecondRow) != 0 ? ptx::load(a + 8 * kSteps) : 0.0f;
    b_[0] = (exists & kFirstBlock) != 0 ? ptx::load(b) : 0.0f;
    b_[1] = (exists & kSecondBlock) != 0 ? ptx::load(b + kBlockDistance * kSteps) : 0.0f;
  }

  static constexpr int32_t kFirstRow = 1, kSecondRow = 2, kFirstBlock = 4, kSecondBlock = 8;

  ptx::GlobalPtr<const float> a_scale_;
  ptx::GlobalPtr<const float> b_scale_;
  uint32_t a_at_;  // element of this lane in the batch that is being fetched
  uint32_t b_at_;
  int32_t step_;
  int32_t exists_;  // which of the four scales there are
  int32_t split_;
  float a_[2];           // being fetched: of rows r and r + 8
  float b_[2];           // of the tile's first and second block of B
  float product_[2][2];  // of this batch
};

}  // namespace moejit::device
