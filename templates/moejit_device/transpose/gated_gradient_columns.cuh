// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a gated activation and both operands of wgrad that go with it, from one read of
// gate, up and the gradient of the activation: values are rounded to bf16, and cast twice, by rows
// and by columns. The activation, which is computed again, is cast by columns. The row chains that
// store bf16, and the casts of their results, give the same bits. A scale belongs to what a tile
// holds, 128 columns of a row or 128 tokens of a column. Or it belongs to a whole row, or to all
// tokens of an expert, and is known beforehand (transpose/gated_scales.cuh).
//
// A CTA takes a tile of 128 rows by 128 columns of gate and of up: every block of either cast is
// whole. Eight lanes take a row segment (transpose/gated_values.cuh), store its quantized rows, and
// leave dgate, dup and act in shared memory where gate, up and the gradient were. Then pairs of
// warps take 64 columns each as in the column-wise cast.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/gated_gradient_columns.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 8;
//   constexpr int32_t kColumns = 2048;
//   constexpr int32_t kPitch = 2048;
//   constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0
//   constexpr int32_t kThreads = 256;
//
//   struct Activation { ... };  // kIsZeroAtZero, value() and gradients()
//
//   using Kernel = GatedGradientColumns<kLocalExperts, kColumns, kPitch, Activation, kEpsilonBits,
//                                       kThreads>;
//
//   where not all of it is wanted, two more arguments, those of GatedGradientTiles
//
//   where scales are known beforehand:
//   using Kernel = GatedGradientCasts<kLocalExperts, kColumns, kPitch, Activation,
//                                     ScalesOfRows<kEpsilonBits>, kThreads>;
//
//   and without rows
//     ScalesOfColumns
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_activation_backward_...,
//                 GatedGradientParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/stage/store_dprobs.cuh"
#include "moejit_device/transpose/gated_scales.cuh"
#include "moejit_device/transpose/gated_values.cuh"

namespace moejit::device {

// Half of kPitch columns of a stored row are gate's. A last tile that is not whole ends with them.
template <int32_t kGroups, int32_t kColumns, int32_t kPitch, typename Activation, typename Scales,
          int32_t kThreads_, typename Store = StoreGroupedGatedRows<kColumns, kGroups, kPitch>,
          bool kTransposesGradient = true>
struct GatedGradientCasts {
  static_assert(kPitch == kColumns || kPitch == align_up(kColumns, int32_t{128}),
                "the last tile of gate and up ends with the row, or is filled up");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  // For the launch bounds: leaves a thread the registers that a row, or a block, and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes =
      StagedValues::kBytes + Scales::kRowBytes + kPairs * Scales::kSlotBytes;

  // As many CTAs as there are tiles, or more.
  MOEJIT_DEVICE static void run(const GatedGradientParams& params) {
    if (has_other_tokens(params.call)) return;
    constexpr int32_t kTilesPerRow = ceil_div(kPitch, int32_t{128});
    const int64_t tile = ptx::cta_index();
    const int64_t tile_row = tile / kTilesPerRow;
    if (tile_row >= params.output_columns / 128) return;
    const RowTile rows = find_row_tile<kGroups>(params, tile_row * 128);
    if (rows.is_past_the_end) return;
    const GatedTile<kColumns> at(params, rows,
                                 static_cast<int32_t>(tile - tile_row * kTilesPerRow));
    if (at.existing <= 0 && at.rows.count <= 0) return;
    Scales::keep_expert(rows.group);
    cast_rows(params, at);
    ptx::sync_cta();  // the tiles are computed
    if (at.rows.count > 0) cast_columns(params, at, static_cast<int32_t>(tile_row));
  }

 private:
  using Values = GatedValues<kColumns, Activation, kThreads>;

  // Stores the quantized rows, and leaves what was computed in shared memory.
  MOEJIT_DEVICE static void cast_rows(const GatedGradientParams& params,
                                      const GatedTile<kColumns>& tile) {
    Values::for_each_row(
        params, tile,
        [&](const SegmentPosition<kColumns>& at, int32_t row) {
          Scales::prepare_row(params, at, row);
        },
        [&](const SegmentPosition<kColumns>& at, int32_t row, float prob) {
          typename Scales::CastRow cast = {};
          if (ptx::ballot(at.is_real()) != 0) {
            const ComputedGatedRow computed = Values::compute(at, row, prob);
            cast = Scales::cast_row(row, computed.gradient);
            if (at.is_real()) {  // zeros were copied where it is not
              StagedValues::store(StagedValues::kGate, row, computed.gradient.gate);
              StagedValues::store(StagedValues::kUp, row, computed.gradient.up);
              StagedValues::store(StagedValues::kAct, row, computed.act);
            }
          }
          Scales::template store_row<Store>(params, at, cast);
        });
  }

  // Casts the tiles by columns, 64 of them with two warps.
  MOEJIT_DEVICE static void cast_columns(const GatedGradientParams& params,
                                         const GatedTile<kColumns>& tile, int32_t tile_row) {
    constexpr int32_t kFirst = 2 * (kTransposesGradient ? StagedValues::kGate : StagedValues::kAct);
    constexpr int32_t kEnd = 2 * StagedValues::kTiles;
    const auto slots = ptx::shared<Bytes16>(static_cast<uint32_t>(
        StagedValues::kBytes + Scales::kRowBytes + pair() * Scales::kSlotBytes));
    const int32_t row = ptx::warp_index() % 2 * 64 + block_row();
#pragma unroll 1
    for (int32_t half_tile = kFirst + pair(); half_tile < kEnd; half_tile += kPairs) {
      const ValueBlock block = StagedValues::load_block(half_tile / 2, row, half_tile % 2);
      BlockScale scale[kValueBlockColumns];
      Scales::find_column_scales(
          params, [&] { return columns_of(tile, tile_row, half_tile); }, block, slots, 1 + pair(),
          scale);
      // Found again, not kept: registers are few.
      const OperandColumns at = columns_of(tile, tile_row, half_tile);
      if (at.exist) {
        const auto codes = ptx::global(at.is_act ? params.act_colwise : params.output_colwise);
        block.store_columns(scale,
                            codes + ((int64_t{tile_row} * at.columns + at.first) * 128 + row));
        if (row == 0) Scales::store_column_scales(params, at, scale);
      }
      if (Scales::kSlotBytes > 0 && kPairs < kEnd - kFirst) {
        ptx::sync_named(1 + pair(), 64);  // the slots are read
      }
    }
  }

  // Returns this lane's eight columns of half of a tile.
  MOEJIT_DEVICE static OperandColumns columns_of(const GatedTile<kColumns>& tile, int32_t tile_row,
                                                 int32_t half_tile) {
    const int32_t part = half_tile / 2;
    const bool is_act = !kTransposesGradient || part == StagedValues::kAct;
    const int32_t column = tile.column * 128 + half_tile % 2 * kPairColumns + value_column();
    return {.is_act = is_act,
            .exist = (kPitch % 128 == 0 && !is_act) || column < (is_act ? kColumns : kPitch),
            .tile_row = tile_row,
            .columns = is_act ? kColumns : 2 * kPitch,
            .first = column + (part == StagedValues::kUp ? kPitch : 0)};
  }

  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }
};

// The casts with the scales of what a tile holds.
template <int32_t kGroups, int32_t kColumns, int32_t kPitch, typename Activation,
          uint32_t kEpsilonBits, int32_t kThreads,
          typename Store = StoreGroupedGatedRows<kColumns, kGroups, kPitch>,
          bool kTransposesGradient = true>
using GatedGradientColumns =
    GatedGradientCasts<kGroups, kColumns, kPitch, Activation, ScalesOfTile<kEpsilonBits>, kThreads,
                       Store, kTransposesGradient>;

}  // namespace moejit::device
