// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of blocks of 128 columns of the rows of both operands, as quantizing each operand on its
// own along the tokens leaves them: in each step every element of the sums has a factor of its own,
// the scale of its row of A times the scale of its row of B. The scales of a block lie in a line.
// So the scales of a tile's step are two pieces of memory, which copies bring with the operands.
//
// Promotion takes two instructions an element and rounds as cuBLASLt does:
// sums = fma(partial * a, b, sums), with the product rounded.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// The factors of a thread's two rows of 64: r and r + 8.
struct RowFactors {
  float upper;
  float lower;
};

template <typename Problem, typename Shape>
class RowScales {
  static constexpr int32_t kRows = Shape::kRows;
  static constexpr int32_t kLines = kRows + Shape::kTileColumns;  // of A, then of B
  static constexpr bool kHasPartialTiles =
      Problem::kRows % kRows != 0 || Problem::kN % Shape::kTileColumns != 0;
  static_assert(Problem::kRows % 4 == 0 && Problem::kN % 4 == 0, "copies are of 16 bytes");

 public:
  static constexpr int32_t kSuppliers = 0;
  static constexpr bool kIsCopied = true;
  static constexpr int32_t kFactorBytes = kLines * static_cast<int32_t>(sizeof(float));

  // Copies the scales of a tile's steps, one after the other. Scales end with the line: rows and
  // columns beyond D keep what the stage held.
  class Copy {
   public:
    template <typename Params>
    MOEJIT_DEVICE Copy(const Params& params, const GemmTile& tile)
        : a_(start(params.a_scale_inv, Problem::kRows, tile.a_row, tile)),
          b_(start(params.b_scale_inv, Problem::kN, tile.b_row, tile)),
          a_bytes_(bytes_of(Problem::kRows - tile.a_row, kRows)),
          b_bytes_(bytes_of(Problem::kN - tile.b_row, Shape::kTileColumns)) {}

    MOEJIT_DEVICE int32_t bytes() const { return a_bytes_ + b_bytes_; }

    MOEJIT_DEVICE void next(ptx::SharedPtr<Bytes16> to, ptx::Mbarrier ready) {
      ptx::load_bulk(to, a_, a_bytes_, ready);
      ptx::load_bulk(to + kRows / 4, b_, b_bytes_, ready);
      skip();
    }
    // Leaves a step's factors to another warp.
    MOEJIT_DEVICE void skip() {
      a_ = a_ + Problem::kRows / 4;
      b_ = b_ + Problem::kN / 4;
    }

   private:
    using Line = ptx::GlobalPtr<const Bytes16>;

    MOEJIT_DEVICE static Line start(const float* scales, int32_t pitch, int32_t row,
                                    const GemmTile& tile) {
      const int64_t line = tile.k_begin / 128;
      return ptx::as<const Bytes16>(ptx::global(scales) + (line * pitch + row));
    }
    MOEJIT_DEVICE static int32_t bytes_of(int32_t left, int32_t most) {
      return smaller(left, most) * static_cast<int32_t>(sizeof(float));
    }

    Line a_, b_;  // of the next step
    int32_t a_bytes_, b_bytes_;
  };

  // Makes defined numbers of all scales in the ring, since copies of tiles that reach beyond D
  // leave some out. All lanes of a warp; a barrier of the CTA follows.
  template <typename Stages>
  MOEJIT_DEVICE static void init() {
    if constexpr (kHasPartialTiles) {
      const auto scales = Stages::template factors<float>(0);
      for (int32_t i = ptx::lane_index(); i < Stages::kStages * kLines; i += 32) {
        ptx::store(scales + i, 0.0f);
      }
      ptx::fence_proxy_async();  // copies write there next
    }
  }

  // Sets the place of the part. Called by all threads of a math warpgroup before a tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart& part) {
    row_ = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    column_ = part.column;
  }

  // Return a thread's factors of a full stage: of its rows of the part's rows 64 * block and the
  // next 63, and of its two of the part's columns 8 * j and the next seven.
  template <typename Stages>
  MOEJIT_DEVICE RowFactors rows(int32_t stage, int32_t block) const {
    const auto rows = Stages::template factors<float>(stage) + (row_ + 64 * block);
    return {.upper = ptx::load(rows), .lower = ptx::load(rows + 8)};
  }
  template <typename Stages>
  MOEJIT_DEVICE FactorPair columns(int32_t stage, int32_t j) const {
    const auto first = Stages::template factors<float>(stage) + (kRows + column_);
    return ptx::load(ptx::as<FactorPair>(first) + ptx::lane_index() % 4 + 4 * j);
  }

  // sums = fma(partial * factor of the row, factor of the column, sums), for products of 64 rows
  // with the columns 8 * j and the next seven. sums [4]
  template <int32_t kColumns>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kColumns>& partial, const RowFactors& rows,
                                    const FactorPair& columns, int32_t j, float* sums) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const float scaled = ptx::multiply(partial(4 * j + i), i < 2 ? rows.upper : rows.lower);
      sums[i] =
          ptx::fused_multiply_add(scaled, i % 2 == 0 ? columns.first : columns.second, sums[i]);
    }
  }

 private:
  int32_t row_;     // of the tile, this thread's first
  int32_t column_;  // of the tile, the part's first
};

}  // namespace moejit::device
