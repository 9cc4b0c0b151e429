// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds the largest magnitudes of the gradient of a gated activation, by rows and by columns, and
// the largest magnitudes of the activation by columns. The scales of whole rows, and of all tokens
// of an expert, follow from them. The values, rounded to bf16, are the ones that GatedGradientCasts
// casts; none of them is stored. NaN counts as nothing.
//
// A CTA takes a tile of 128 rows by 128 columns of gate and of up. A lane has the same columns of
// some rows: their magnitudes stay in registers. They meet the magnitudes of the warp's other rows
// by shuffles, and those from other warps in shared memory.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/gated_gradient_amax.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 8;
//   constexpr int32_t kColumns = 2048;
//   constexpr int32_t kPitch = 2048;
//   constexpr int32_t kThreads = 256;
//
//   struct Activation { ... };  // kIsZeroAtZero, value() and gradients()
//
//   using Kernel = GatedGradientAmax<kLocalExperts, kColumns, kPitch, Activation, kThreads>;
//
//   where not all of it is wanted, two more arguments: kOfRows and kOfGradientColumns
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_activation_backward_amax_...,
//                 GatedGradientParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/transpose/gated_values.cuh"

namespace moejit::device {

// Writes `output` f32 [P, B], of each segment of gate and up together, in real rows; and
// `output_colwise` bf16 [Pc / 128, 2 kPitch] and `act_colwise` bf16 [Pc / 128, C], of the columns
// of each tile that has real rows.
template <int32_t kGroups, int32_t kColumns, int32_t kPitch, typename Activation, int32_t kThreads_,
          bool kOfRows = true, bool kOfGradientColumns = true>
struct GatedGradientAmax {
  static_assert(kPitch == kColumns || kPitch == align_up(kColumns, int32_t{128}),
                "the last tile of gate and up ends with the row, or is filled up");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  // For the launch bounds: leaves a thread the registers that a row and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});
  static constexpr int32_t kWarpRuns = StagedValues::kTiles * StagedValues::kRowRuns;
  static constexpr int32_t kSharedBytes = StagedValues::kBytes + kWarps * kWarpRuns * 16;

  // As many CTAs as there are tiles, or more.
  MOEJIT_DEVICE static void run(const GatedGradientParams& params) {
    if (has_other_tokens(params.call)) return;
    constexpr int32_t kTilesPerRow = ceil_div(kPitch, int32_t{128});
    const int64_t tile = ptx::cta_index();
    const int64_t tile_row = tile / kTilesPerRow;
    if (tile_row >= params.output_columns / 128) return;
    const RowTile rows = find_row_tile<kGroups>(params, tile_row * 128);
    if (rows.is_past_the_end || rows.count <= 0) return;
    const GatedTile<kColumns> at(params, rows,
                                 static_cast<int32_t>(tile - tile_row * kTilesPerRow));
    share(magnitudes(params, at));
    ptx::sync_cta();
    store_columns(params, tile_row, at.column);
  }

 private:
  using Values = GatedValues<kColumns, Activation, kThreads>;
  static constexpr int32_t kFirst = kOfGradientColumns ? StagedValues::kGate : StagedValues::kAct;

  // The largest magnitudes of this lane's columns of each tile.
  struct ColumnAmax {
    Bf16Segment of[StagedValues::kTiles];

    MOEJIT_DEVICE void raise(int32_t tile, const Bf16Segment& values) {
#pragma unroll
      for (int32_t run = 0; run < 2; ++run) {
        of[tile].run[run] = larger_magnitudes(of[tile].run[run], values.run[run]);
      }
    }
  };

  // Returns the columns' magnitudes over the rows that this lane has a part of, and stores the
  // rows' magnitudes.
  MOEJIT_DEVICE static ColumnAmax magnitudes(const GatedGradientParams& params,
                                             const GatedTile<kColumns>& tile) {
    ColumnAmax amax = {};
    Values::for_each_row(
        params, tile, [](const SegmentPosition<kColumns>&, int32_t) {},
        [&](const SegmentPosition<kColumns>& at, int32_t row, float prob) {
          if (ptx::ballot(at.is_real()) == 0) return;
          const ComputedGatedRow computed = Values::compute(at, row, prob);
          if (at.is_real()) {
            if constexpr (kOfGradientColumns) {
              amax.raise(StagedValues::kGate, computed.gradient.gate);
              amax.raise(StagedValues::kUp, computed.gradient.up);
            }
            amax.raise(StagedValues::kAct, computed.act);
          }
          if constexpr (kOfRows) {
            const float of_row = max_of_segment(magnitude_of_lane(computed.gradient));
            if (at.is_real() && segment_lane() == 0) {
              ptx::store(ptx::global(static_cast<float*>(params.output)) + at.scale_offset(),
                         of_row);
            }
          }
        });
    return amax;
  }

  // Returns the place of a warp's magnitudes of eight columns.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> slot(int32_t warp, int32_t tile, int32_t run) {
    return ptx::shared<Bytes16>(static_cast<uint32_t>(StagedValues::kBytes)) +
           ((warp * StagedValues::kTiles + tile) * StagedValues::kRowRuns + run);
  }

  // Leaves the warp's magnitudes in shared memory.
  MOEJIT_DEVICE static void share(const ColumnAmax& amax) {
#pragma unroll
    for (int32_t tile = kFirst; tile < StagedValues::kTiles; ++tile) {
#pragma unroll
      for (int32_t run = 0; run < 2; ++run) {
        const Bytes16 of_warp = max_of_row_groups(amax.of[tile].run[run]);
        if (ptx::lane_index() < kSegmentLanes) {
          ptx::store(slot(ptx::warp_index(), tile, run * kSegmentLanes + segment_lane()), of_warp);
        }
      }
    }
  }

  // Stores the CTA's magnitudes; each thread stores eight columns.
  MOEJIT_DEVICE static void store_columns(const GatedGradientParams& params, int64_t tile_row,
                                          int32_t tile_column) {
    constexpr int32_t kRuns = StagedValues::kRowRuns;
    const int32_t tile = kFirst + ptx::thread_index() / kRuns;
    const int32_t run = ptx::thread_index() % kRuns;
    const bool is_act = tile == StagedValues::kAct;
    const int32_t column = tile_column * 128 + run * kRunColumns;
    if (tile >= StagedValues::kTiles || column >= (is_act ? kColumns : kPitch)) return;
    Bytes16 amax = {};
#pragma unroll
    for (int32_t warp = 0; warp < kWarps; ++warp) {
      amax = larger_magnitudes(amax, ptx::load(slot(warp, tile, run)));
    }
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) amax.word[w] &= 0x7fff7fffu;  // without signs
    const auto output =
        ptx::as<Bf16>(ptx::global(is_act ? params.act_colwise : params.output_colwise));
    const int64_t first = tile_row * (is_act ? kColumns : 2 * kPitch) + column +
                          (tile == StagedValues::kUp ? kPitch : 0);
    ptx::store(ptx::as<Bytes16>(output + first), amax);
  }
};

}  // namespace moejit::device
