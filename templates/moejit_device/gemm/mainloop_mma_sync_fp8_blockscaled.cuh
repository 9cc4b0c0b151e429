// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of e4m3 matrices with 1x128 scales on A and 128x128 scales on B, by mma.sync.
//
// Each 128 of the contraction is summed by the tensor cores without scales (p), then
// acc = fma(p * scale of A's row, scale of B's tile, acc), blocks ascending. Every element of D
// goes through the same instructions whatever its position and whatever the other rows hold.
//
// A ring of kStages stages in shared memory holds 128 bytes of each row of A and of B. 16-byte
// chunk c of row r lies at chunk c ^ (r % 8) of that row, so that the eight rows which one matrix
// of ldmatrix reads lie in different banks, as do the eight chunks of one row which a copy writes.
// Rows and columns outside of the matrices are filled with zeros.
//
// Hopper has no FP8 mma.sync: the assembler widens the fragments to fp16 (exactly) and uses the
// fp16 tensor-core instruction. A warp takes 16 columns at a time, so that B's fragments for 128 of
// the contraction are loaded and widened once for all rows of the warp.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/mma.cuh"

namespace moejit::device {

template <typename Problem, typename Shape, int32_t kStages>
class MainloopMmaSyncFp8Blockscaled {
  static_assert(Shape::kTileK == 128 && Shape::kTileN == 128,
                "a tile of B has one scale: B is scaled by 128x128");
  static_assert(kStages >= 2, "a stage is filled while another is used");
  static constexpr int32_t kChunk = 16;  // bytes of an access to shared memory
  static constexpr int32_t kRowChunks = Shape::kTileK / kChunk;
  static constexpr int32_t kRowsAtOnce = Shape::kThreads / kRowChunks;  // of one round of copies
  static constexpr uint32_t kStageBytesA = Shape::kTileM * Shape::kTileK;
  static constexpr uint32_t kStageBytesB = Shape::kTileN * Shape::kTileK;
  static constexpr uint32_t kStageBytes = kStageBytesA + kStageBytesB;
  static constexpr int32_t kBlocks = ceil_div(Problem::kK, Shape::kTileK);
  static constexpr int32_t kColumnTiles =
      Problem::kSections * ceil_div(Problem::kSectionN, Shape::kTileN);
  static_assert(kRowsAtOnce % 8 == 0, "a thread's rows share a swizzle");
  static_assert(Shape::kTileM % kRowsAtOnce == 0 && Shape::kTileN % kRowsAtOnce == 0,
                "copies come in whole rounds");
  static_assert(Shape::kThreads >= Shape::kTileM, "each row's scale has a thread that fetches it");

 public:
  // Accumulators and widened fragments take about 200 registers: with two CTAs on an SM each thread
  // would have 128 and spill.
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes =
      kStages * static_cast<int32_t>(kStageBytes) + 2 * 4 * Shape::kTileM;

  // Computes one tile; all threads of the CTA call. `tile.rows` > 0. Accumulators of rows from
  // tile.rows on, and of columns from tile.columns on, are of no meaning.
  MOEJIT_DEVICE static void run(const GroupedGemmParams& params, const GemmTile& tile,
                                Accumulators<Shape>& sum) {
    const MainloopMmaSyncFp8Blockscaled loop(params, tile);
    ptx::sync_cta();  // all warps are done with the shared memory of the tile before
#pragma unroll
    for (int32_t block = 0; block < kStages - 1; ++block) loop.start_copies(block);
    store_row_scale(0, loop.load_row_scale(0));
    float next_scale = loop.load_row_scale(1);
    for (int32_t block = 0; block < kBlocks; ++block) {
      ptx::wait_async_copies<kStages - 2>();
      // The copies of all threads into this block's stage are complete and its row scales are
      // stored; all warps are done with the stage and the scales of the block before, which are
      // overwritten now.
      ptx::sync_cta();
      loop.start_copies(block + kStages - 1);
      store_row_scale(block + 1, next_scale);
      next_scale = loop.load_row_scale(block + 2);
      loop.add_block(block, sum);
    }
  }

 private:
  MOEJIT_DEVICE MainloopMmaSyncFp8Blockscaled(const GroupedGemmParams& params, const GemmTile& tile)
      : rows_(tile.rows), columns_(tile.columns) {
    const int64_t b_row = static_cast<int64_t>(tile.group) * Problem::kN + tile.first_column;
    const int64_t b_tile = static_cast<int64_t>(tile.group) * kColumnTiles + tile.n_tile;
    a_ = ptx::global(params.a) + static_cast<int64_t>(tile.first_row) * Problem::kK;
    b_ = ptx::global(params.b) + b_row * Problem::kK;
    a_scale_ = ptx::global(params.a_scale_inv) + static_cast<int64_t>(tile.first_row) * kBlocks;
    b_scale_ = ptx::global(params.b_scale_inv) + b_tile * kBlocks;
  }

  // This thread's copies of one block, a group of their own; an empty group beyond the last.
  MOEJIT_DEVICE void start_copies(int32_t block) const {
    if (block < kBlocks) {
      const uint32_t stage = stage_offset(block);
      copy_rows<Shape::kTileM>(stage, a_, rows_, block);
      copy_rows<Shape::kTileN>(stage + kStageBytesA, b_, columns_, block);
    }
    ptx::commit_async_copies();
  }

  // kRows rows of the matrix whose first row is the tile's; the addresses of rows from valid_rows
  // on are not used.
  template <int32_t kRows>
  MOEJIT_DEVICE static void copy_rows(uint32_t destination, ptx::GlobalPtr<const E4m3> matrix,
                                      int32_t valid_rows, int32_t block) {
    const int32_t chunk = ptx::thread_index() % kRowChunks;
    const int32_t first_row = ptx::thread_index() / kRowChunks;
    const int32_t k = block * Shape::kTileK + chunk * kChunk;
    const bool in_row = Problem::kK % Shape::kTileK == 0 || k < Problem::kK;
    const auto source = matrix + (static_cast<int64_t>(first_row) * Problem::kK + k);
    const auto target = ptx::shared<Bytes16>(destination) + swizzled(first_row, chunk);
#pragma unroll
    for (int32_t row = 0; row < kRows; row += kRowsAtOnce) {
      ptx::copy_async_16(target + row * kRowChunks,
                         ptx::as<const Bytes16>(source + static_cast<int64_t>(row) * Problem::kK),
                         in_row && first_row + row < valid_rows);
    }
  }

  // The scale of row thread_index() for a block, 0 where there is none.
  MOEJIT_DEVICE float load_row_scale(int32_t block) const {
    const int32_t row = ptx::thread_index();
    if (row >= rows_ || block >= kBlocks) return 0.0f;
    return ptx::load(a_scale_ + (static_cast<int64_t>(row) * kBlocks + block));
  }

  MOEJIT_DEVICE static void store_row_scale(int32_t block, float scale) {
    const int32_t row = ptx::thread_index();
    if (row < Shape::kTileM) ptx::store(row_scales(block) + row, scale);
  }

  // The tile's row scales for a block: a block's and the next one's are kept.
  MOEJIT_DEVICE static ptx::SharedPtr<float> row_scales(int32_t block) {
    return ptx::shared<float>(kStages * kStageBytes) + block % 2 * Shape::kTileM;
  }

  MOEJIT_DEVICE static uint32_t stage_offset(int32_t block) {
    return static_cast<uint32_t>(block % kStages) * kStageBytes;
  }

  MOEJIT_DEVICE static int32_t swizzled(int32_t row, int32_t chunk) {
    return row * kRowChunks + (chunk ^ (row % 8));
  }

  // Adds one block's products; warps and fragments without real rows have nothing to add.
  MOEJIT_DEVICE void add_block(int32_t block, Accumulators<Shape>& sum) const {
    const int32_t first_row = warp_row<Shape>();
    if (first_row >= rows_) return;
    const auto a = ptx::shared<Bytes16>(stage_offset(block));
    const auto b = ptx::shared<Bytes16>(stage_offset(block) + kStageBytesA);
    const auto scales = row_scales(block);
    // Asked for before the products that it scales, so that these hide the wait.
    const float b_scale = ptx::load(b_scale_ + block);
#pragma unroll
    for (int32_t pair = 0; pair < Shape::kFragmentsN / 2; ++pair) {
      const ColumnFragments columns = load_columns(b, warp_column<Shape>() + 16 * pair);
#pragma unroll
      for (int32_t i = 0; i < Shape::kFragmentsM; ++i) {
        const int32_t row = first_row + 16 * i;
        if (row >= rows_) break;
        float partial[2][4] = {};
        multiply(a, row, columns, partial);
        const float low_scale = ptx::load(scales + (row + ptx::lane_index() / 4));
        const float high_scale = ptx::load(scales + (row + ptx::lane_index() / 4 + 8));
#pragma unroll
        for (int32_t j = 0; j < 2; ++j) {
          promote(partial[j], low_scale, high_scale, b_scale, sum.value[i][2 * pair + j]);
        }
      }
    }
  }

  // 16 columns of B over the whole block: four steps of 32, each {column 0-7: words 0, 1; column
  // 8-15: words 2, 3}.
  struct ColumnFragments {
    ptx::MatrixFragments step[Shape::kTileK / 32];
  };

  MOEJIT_DEVICE static ColumnFragments load_columns(ptx::SharedPtr<Bytes16> b, int32_t column) {
    const int32_t lane = ptx::lane_index();
    const int32_t row = column + lane % 8 + lane / 16 * 8;
    ColumnFragments columns;
#pragma unroll
    for (int32_t step = 0; step < Shape::kTileK / 32; ++step) {
      columns.step[step] = ptx::load_matrices(b + swizzled(row, 2 * step + lane / 8 % 2));
    }
    return columns;
  }

  MOEJIT_DEVICE static void multiply(ptx::SharedPtr<Bytes16> a, int32_t first_row,
                                     const ColumnFragments& columns, float (&partial)[2][4]) {
    const int32_t lane = ptx::lane_index();
    const int32_t row = first_row + lane % 16;
#pragma unroll
    for (int32_t step = 0; step < Shape::kTileK / 32; ++step) {
      const ptx::MatrixFragments rows = ptx::load_matrices(a + swizzled(row, 2 * step + lane / 16));
      const uint32_t(&word)[4] = columns.step[step].word;
      ptx::mma_m16n8k32_e4m3(partial[0], rows.word, {word[0], word[1]});
      ptx::mma_m16n8k32_e4m3(partial[1], rows.word, {word[2], word[3]});
    }
  }

  MOEJIT_DEVICE static void promote(const float (&partial)[4], float low_scale, float high_scale,
                                    float b_scale, float (&sum)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const float scaled = ptx::multiply(partial[i], i < 2 ? low_scale : high_scale);
      sum[i] = ptx::fused_multiply_add(scaled, b_scale, sum[i]);
    }
  }

  ptx::GlobalPtr<const E4m3> a_;         // the tile's corner
  ptx::GlobalPtr<const E4m3> b_;         // likewise
  ptx::GlobalPtr<const float> a_scale_;  // of the tile's first row
  ptx::GlobalPtr<const float> b_scale_;  // of the tile
  int32_t rows_;
  int32_t columns_;
};

}  // namespace moejit::device
