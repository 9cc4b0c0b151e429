// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a gated activation and both operands of wgrad that go with it, from one read of
// gate, up and the gradient of the activation: values are rounded to bf16, and cast twice, by rows
// with a scale for 128 columns and by columns with a scale for 128 tokens. The activation, which is
// computed again, is cast by columns. The bits are those of the row chains that store bf16, and of
// the column-wise cast of what these store.
//
// A CTA takes a tile of 128 rows by 128 columns of gate and of up: every block of either cast is
// whole. Three tiles of bf16 hold in shared memory what was read, all of which is on its way at
// once, and then in its place what was computed: eight lanes take a row segment as in the row
// chain, store its quantized rows, and leave dgate, dup and act where gate, up and the gradient
// were. Then pairs of warps take 64 columns each as in the column-wise cast. No access to shared
// memory meets a bank twice: rows are 256 bytes, and eight lanes take 128 of them.
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
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_activation_backward_...,
//                 GatedGradientParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/quantize_rounded.cuh"
#include "moejit_device/stage/store_dprobs.cuh"
#include "moejit_device/stage/store_gated_rows.cuh"
#include "moejit_device/stage/transform.cuh"
#include "moejit_device/transpose/gated_tile.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

// Three tiles of bf16 in shared memory, 128 rows by 128 columns each, row after row.
struct StagedValues {
  static constexpr int32_t kRowRuns = 16;  // of 16 bytes
  static constexpr int32_t kTileBytes = 128 * kRowRuns * 16;

  // Returns the place of 16 bytes of a row, `run` of kRowRuns.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> at(int32_t tile, int32_t row, int32_t run) {
    return ptx::shared<Bytes16>(static_cast<uint32_t>(tile * kTileBytes)) + (row * kRowRuns + run);
  }
  // This lane's runs of a segment, which is a whole row of the tile.
  MOEJIT_DEVICE static Bf16Segment load(int32_t tile, int32_t row) {
    const int32_t lane = segment_lane();
    return {{ptx::load(at(tile, row, lane)), ptx::load(at(tile, row, kSegmentLanes + lane))}};
  }
  MOEJIT_DEVICE static void store(int32_t tile, int32_t row, const Bf16Segment& segment) {
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      ptx::store(at(tile, row, run * kSegmentLanes + segment_lane()), segment.run[run]);
    }
  }
  // 16 rows of 8 columns, of which this lane's are in the half `half` of the tile's columns.
  MOEJIT_DEVICE static ValueBlock load_block(int32_t tile, int32_t row, int32_t half) {
    const auto first = at(tile, row, half * (kRowRuns / 2) + column_group_of(ptx::lane_index()));
    ValueBlock block;
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes; ++i) {
      block.rows.row[i] = ptx::load(first + i * kRowRuns);
    }
    return block;
  }
};

template <int32_t kGroups, int32_t kColumns, int32_t kPitch, typename Activation,
          uint32_t kEpsilonBits, int32_t kThreads_,
          typename Store = StoreGroupedGatedRows<kColumns, kGroups, kPitch>,
          bool kTransposesGradient = true>
struct GatedGradientColumns {
  static_assert(kPitch == align_up(kColumns, int32_t{128}), "gate and up are whole tiles each");
  static_assert(kThreads_ % 64 == 0 && 128 % (kThreads_ / kSegmentLanes) == 0,
                "the threads hold a whole number of rows at a time, 128 of them in whole turns");

  enum Tile { kGate, kUp, kAct, kTiles };  // kAct holds the gradient of act first

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  // For the launch bounds: leaves a thread the registers that a row, or a block, and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes =
      kTiles * StagedValues::kTileBytes + kPairs * kPairSlotBytes;

  // As many CTAs as there are tiles, or more.
  MOEJIT_DEVICE static void run(const GatedGradientParams& params) {
    if (has_other_tokens(params.call)) return;
    constexpr int32_t kTilesPerRow = kPitch / 128;
    const int64_t tile = ptx::cta_index();
    const int64_t tile_row = tile / kTilesPerRow;
    if (tile_row >= params.output_columns / 128) return;
    const RowTile rows = find_row_tile<kGroups>(params, tile_row * 128);
    if (rows.is_past_the_end) return;
    const GatedTile<kColumns> at(params, rows,
                                 static_cast<int32_t>(tile - tile_row * kTilesPerRow));
    if (at.existing <= 0 && at.rows.count <= 0) return;
#pragma unroll
    for (int32_t turn = 0; turn < kTurns; ++turn) fetch(params, at, row_of_turn(turn));
    compute<0>(params, at);
    ptx::sync_cta();  // the tiles are computed
    if (at.rows.count > 0) store_columns(params, tile_row, at.column);
  }

 private:
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;
  using Inside = ActivationInside<Activation>;

  // Returns this lane's row of the tile.
  MOEJIT_DEVICE static int32_t row_of_turn(int32_t turn) {
    return turn * kRowsPerTurn + ptx::thread_index() / kSegmentLanes;
  }

  // Starts the copies of this thread's part of a row, zeros where it is not real.
  MOEJIT_DEVICE static void fetch(const GatedGradientParams& params,
                                  const GatedTile<kColumns>& tile, int32_t row) {
    const SegmentPosition<kColumns> at = tile.position(row);
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    const auto gradient = ptx::global(static_cast<const Bf16*>(params.gradient));
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      const int32_t column = run_column(run);
      const bool reads = at.is_real() && at.is_inside(column);
      const auto copy = [&](int32_t to, ptx::GlobalPtr<const Bf16> matrix, int64_t row_of_matrix) {
        ptx::copy_async_16(StagedValues::at(to, row, run * kSegmentLanes + segment_lane()),
                           ptx::as<const Bytes16>(matrix + at.offset_in_row(row_of_matrix, column)),
                           reads);
      };
      copy(kGate, input, 2 * at.row);
      copy(kUp, input, 2 * at.row + 1);
      copy(kAct, gradient, at.row);
    }
    ptx::commit_async_copies();
  }

  // Turns from kTurn on, in the order of their copies.
  template <int32_t kTurn>
  MOEJIT_DEVICE static void compute(const GatedGradientParams& params,
                                    const GatedTile<kColumns>& tile) {
    if constexpr (kTurn < kTurns) {
      const int32_t row = row_of_turn(kTurn);
      const SegmentPosition<kColumns> at = tile.position(row);
      const float prob = at.is_real() ? ptx::load(ptx::global(params.probs) + at.row) : 0.0f;
      ptx::wait_async_copies<kTurns - 1 - kTurn>();
      compute_row(params, at, row, prob);
      compute<kTurn + 1>(params, tile);
    }
  }

  struct Computed {
    Bf16Segment act;
    Bf16GatedGradient gradient;
  };

  // A row segment of every eight lanes, from values to values and to its quantized rows.
  MOEJIT_DEVICE static void compute_row(const GatedGradientParams& params,
                                        const SegmentPosition<kColumns>& at, int32_t row,
                                        float prob) {
    QuantizedGatedGradient quantized = {};
    if (ptx::ballot(at.is_real()) != 0) {
      const Computed computed = transform(at, row, prob);
      quantized = Quantize1x128Rounded<kEpsilonBits>::apply(computed.gradient);
      if (at.is_real()) {  // zeros were copied where it is not
        StagedValues::store(kGate, row, computed.gradient.gate);
        StagedValues::store(kUp, row, computed.gradient.up);
        StagedValues::store(kAct, row, computed.act);
      }
    }
    Store::store(row_chain_params(params), at, Nothing{}, quantized);
  }

  // Returns what TransformActivationProbability and TransformActivationBackward compute, rounded to
  // bf16.
  MOEJIT_DEVICE static Computed transform(const SegmentPosition<kColumns>& at, int32_t row,
                                          float prob) {
    const ExistingRuns exists = at.existing_runs();
    const ValueSegment gate = unpack_bf16(StagedValues::load(kGate, row));
    const ValueSegment up = unpack_bf16(StagedValues::load(kUp, row));
    const ValueSegment gradient = unpack_bf16(StagedValues::load(kAct, row));
    ValueSegment act;
    GatedGradient of_halves;
    of_halves.prob = prob;
    of_halves.dprob = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      act.value[i] = Inside::value(exists, i, prob, gate.value[i], up.value[i]);
      const ActivationGradients of = Inside::gradients(exists, i, of_halves.dprob, gate.value[i],
                                                       up.value[i], gradient.value[i]);
      of_halves.gate.value[i] = of.gate;
      of_halves.up.value[i] = of.up;
      of_halves.dprob = of.dprob;
    }
    return {.act = pack_bf16(act), .gradient = round_gated_gradient(of_halves)};
  }

  // Casts the tiles by columns, 64 of them with two warps.
  MOEJIT_DEVICE static void store_columns(const GatedGradientParams& params, int64_t tile_row,
                                          int32_t tile_column) {
    constexpr int32_t kFirst = 2 * (kTransposesGradient ? kGate : kAct), kEnd = 2 * kTiles;
    const auto slots = ptx::shared<Bytes16>(
        static_cast<uint32_t>(kTiles * StagedValues::kTileBytes + pair() * kPairSlotBytes));
    const int32_t row = ptx::warp_index() % 2 * 64 + block_row();
#pragma unroll 1
    for (int32_t half_tile = kFirst + pair(); half_tile < kEnd; half_tile += kPairs) {
      const int32_t tile = half_tile / 2;
      const ValueBlock block = StagedValues::load_block(tile, row, half_tile % 2);
      BlockScale scale[kValueBlockColumns];
      block.template find_scales<kEpsilonBits>(slots, 1 + pair(), scale);
      const int64_t column = (tile_column + (tile == kUp ? kPitch / 128 : 0)) * int64_t{128} +
                             half_tile % 2 * kPairColumns + value_column();
      const bool is_act = tile == kAct;
      const int64_t columns = is_act ? kColumns : 2 * kPitch;
      if (!is_act || column < kColumns) {
        const auto codes = ptx::global(is_act ? params.act_colwise : params.output_colwise);
        block.store_columns(scale, codes + ((tile_row * columns + column) * 128 + row));
        if (row == 0) {
          store_scales(scale, column_scale(is_act ? params.act_colwise_scale_inv
                                                  : params.output_colwise_scale_inv,
                                           columns, tile_row, column));
        }
      }
      if (kPairs < kEnd - kFirst) ptx::sync_named(1 + pair(), 64);  // the slots are read
    }
  }

  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }
};

}  // namespace moejit::device
