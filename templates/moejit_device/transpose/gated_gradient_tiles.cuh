// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a gated activation and both operands of wgrad that go with it, from one read of
// gate, up and the gradient of the activation: rows of quantized gradients as the row chain stores
// them, and the transposes of these and of the activation, which is computed again. The row chains
// and the scaling-aware transposes give the same bits.
//
// A CTA takes a tile of 128 rows by 128 columns of gate and of up. First eight lanes hold a row
// segment as in the row chain, and leave its codes and scales in shared memory; the next one is on
// its way there meanwhile, for registers are few. Then pairs of warps take the three tiles of codes
// as in the transpose. No access to shared memory meets a bank twice: eight lanes take 16 columns
// each of a row's 128, all of one row or each of another.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/gated_gradient_tiles.cuh"
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
//   using Kernel = GatedGradientTiles<kLocalExperts, kColumns, kPitch, Activation,
//                                     Quantize1x128<kEpsilonBits>, kThreads>;
//
//   where not all of it is wanted, two more arguments: the store stage of the rows
//     StoreGroupedGatedRows<kColumns, kLocalExperts, kPitch, kInterleaved, kTellsDprobs>,
//     StoreGroupedDprobs<kColumns, kLocalExperts> or StoreNothing
//   and kTransposesGradient, without which the activation alone is transposed
//
//   where experts have known scales, which leave bytes as they are in a transposed tile:
//     CastOfExpert<E5m2, ColumnOfExpert<kAmaxStride, kAmaxFirst>> instead of Quantize1x128
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_activation_backward_...,
//                 GatedGradientParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/quantize.cuh"
#include "moejit_device/stage/store_dprobs.cuh"
#include "moejit_device/stage/store_gated_rows.cuh"
#include "moejit_device/stage/transform.cuh"
#include "moejit_device/transpose/expert_cast.cuh"
#include "moejit_device/transpose/flushed.cuh"
#include "moejit_device/transpose/gated_tile.cuh"
#include "moejit_device/transpose/rescale.cuh"
#include "moejit_device/transpose/tile_rescale.cuh"

namespace moejit::device {

// Codes of 128 rows by 128 columns in shared memory, row after row, and the rows' scales.
struct StagedRows {
  static constexpr int32_t kCodeBytes = 128 * 128;
  static constexpr int32_t kBytes = kCodeBytes + 128 * 4;

  ptx::SharedPtr<uint8_t> codes;

  // This lane's bytes of a segment, and from one lane its scale.
  MOEJIT_DEVICE void store(int32_t row, const Bytes16& bytes) const {
    ptx::store(ptx::as<Bytes16>(codes + (row * 128 + byte_column())), bytes);
  }
  MOEJIT_DEVICE void store_scale(int32_t row, float scale_inv) const {
    ptx::store(ptx::as<float>(codes + kCodeBytes) + row, scale_inv);
  }
  // Loads the scales of the rows 64 * half + 2 * lane and the next.
  MOEJIT_DEVICE RowScalePair load_scales(int32_t half) const {
    const auto scales = ptx::as<uint32_t>(codes + kCodeBytes) + 64 * half + 2 * ptx::lane_index();
    return {{ptx::load(scales), ptx::load(scales + 1)}};
  }
  // 16 rows of 16 columns.
  MOEJIT_DEVICE ByteBlock load_block(int32_t row, int32_t column) const {
    ByteBlock block;
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes; ++i) {
      block.row[i] = ptx::load(ptx::as<Bytes16>(codes + ((row + i) * 128 + column)));
    }
    return block;
  }
};

template <int32_t kGroups, int32_t kColumns, int32_t kPitch, typename Activation, typename Quantize,
          int32_t kThreads_, typename Store = StoreGroupedGatedRows<kColumns, kGroups, kPitch>,
          bool kTransposesGradient = true>
struct GatedGradientTiles {
  static_assert(kPitch == align_up(kColumns, int32_t{128}), "gate and up are whole tiles each");
  static_assert(Quantize::kSegmentsPerScale == 1, "a tile has one segment of a row");
  static_assert(kThreads_ % 64 == 0 && 128 % (kThreads_ / kSegmentLanes) == 0,
                "the threads hold a whole number of rows at a time, 128 of them in whole turns");

  enum Part { kGate, kUp, kAct, kParts };

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  static constexpr int32_t kRuns = 6;  // of 16 bytes: two of gate, of up and of the gradient
  // For the launch bounds: leaves a thread the registers that a row and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes =
      kParts * StagedRows::kBytes + kThreads * kRuns * 16 + kPairs * 2 * 4;

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
    const RowChainParams chain = row_chain_params(params);
    Quantize quantize = quantize_of(params, rows.group);
    float prob = fetch_ahead(params, at.position(row_of_turn(0)));
#pragma unroll 1
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      const GatedGradientSegment segment = take_fetched(prob);
      if (turn + 1 < kTurns) prob = fetch_ahead(params, at.position(row_of_turn(turn + 1)));
      stage_rows(chain, at.position(row_of_turn(turn)), row_of_turn(turn), segment, quantize);
    }
    // The tiles are staged.
    if constexpr (kKeepsBytes) {
      quantize.template finish<kThreads / 32>(params, rows.group, ptx::shared<float>(kSlots));
    } else {
      ptx::sync_cta();
    }
    store_transposed(params, tile_row, at.column);
  }

 private:
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;
  // Whether codes have a scale that their rows and columns share, and that lies elsewhere.
  static constexpr bool kKeepsBytes = requires { Quantize::kKeepsBytes; };
  // Two words for each pair of warps, behind everything else.
  static constexpr uint32_t kSlots = kSharedBytes - kPairs * 2 * 4;

  MOEJIT_DEVICE static Quantize quantize_of(const GatedGradientParams& params, int32_t group) {
    if constexpr (kKeepsBytes)
      return Quantize(params, group);
    else
      return Quantize{};
  }

  MOEJIT_DEVICE static StagedRows staged(int32_t part) {
    return {ptx::shared<uint8_t>(static_cast<uint32_t>(part * StagedRows::kBytes))};
  }

  struct Transformed {
    ValueSegment act;
    GatedGradient gradient;
  };

  // Returns what TransformActivationProbability and TransformActivationBackward compute, a column
  // after the other: what they share would otherwise wait in registers, for all columns, until act
  // is stored.
  MOEJIT_DEVICE static Transformed transform(const GatedGradientSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.forward.gate);
    const ValueSegment up = unpack_bf16(segment.forward.up);
    const ValueSegment gradient = unpack_bf16(segment.gradient);
    Transformed result;
    result.gradient.prob = segment.forward.prob;
    result.gradient.dprob = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.act.value[i] = Inside::value(segment.forward.exists, i, segment.forward.prob,
                                          gate.value[i], up.value[i]);
      const ActivationGradients of =
          Inside::gradients(segment.forward.exists, i, result.gradient.dprob, gate.value[i],
                            up.value[i], gradient.value[i]);
      result.gradient.gate.value[i] = of.gate;
      result.gradient.up.value[i] = of.up;
      result.gradient.dprob = of.dprob;
    }
    return result;
  }

  // Returns this lane's row of the tile.
  MOEJIT_DEVICE static int32_t row_of_turn(int32_t turn) {
    return turn * kRowsPerTurn + ptx::thread_index() / kSegmentLanes;
  }

  // 16 bytes of gate, up and the gradient, two runs each, that only this thread writes and reads.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> ahead(int32_t run) {
    return ptx::shared<Bytes16>(static_cast<uint32_t>(kParts * StagedRows::kBytes)) +
           (run * kThreads + ptx::thread_index());
  }

  // Starts the copies of this thread's part of a row, zeros where it is not real, and gives the
  // row's factor.
  MOEJIT_DEVICE static float fetch_ahead(const GatedGradientParams& params,
                                         const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    const auto gradient = ptx::global(static_cast<const Bf16*>(params.gradient));
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      const int32_t column = run_column(run);
      const bool reads = at.is_real() && at.is_inside(column);
      const auto copy = [&](int32_t part, ptx::GlobalPtr<const Bf16> matrix, int64_t row) {
        ptx::copy_async_16(ahead(2 * part + run),
                           ptx::as<const Bytes16>(matrix + at.offset_in_row(row, column)), reads);
      };
      copy(0, input, 2 * at.row);
      copy(1, input, 2 * at.row + 1);
      copy(2, gradient, at.row);
    }
    ptx::commit_async_copies();
    return at.is_real() ? ptx::load(ptx::global(params.probs) + at.row) : 0.0f;
  }
  // Returns the segment of the row that was fetched last; stage_rows() knows which of its columns
  // exist.
  MOEJIT_DEVICE static GatedGradientSegment take_fetched(float prob) {
    ptx::wait_async_copies<0>();
    return {.forward = {.gate = {{ptx::load(ahead(0)), ptx::load(ahead(1))}},
                        .up = {{ptx::load(ahead(2)), ptx::load(ahead(3))}},
                        .prob = prob,
                        .exists = {}},
            .gradient = {{ptx::load(ahead(4)), ptx::load(ahead(5))}}};
  }

  // A row segment of every eight lanes.
  MOEJIT_DEVICE static void stage_rows(const RowChainParams& chain,
                                       const SegmentPosition<kColumns>& at, int32_t row,
                                       GatedGradientSegment segment, Quantize& quantize) {
    decltype(quantize.apply(detail::made<GatedGradient>())) gradient = {};
    decltype(quantize.apply(detail::made<ValueSegment>())) act = {};
    if (ptx::ballot(at.is_real()) != 0) {
      segment.forward.exists = at.existing_runs();
      const Transformed values = transform(segment);
      act = quantize.apply(values.act);
      gradient = quantize.apply(values.gradient);
    }
    Store::store(chain, at, Nothing{}, gradient);

    const bool is_real = at.is_real();
    staged(kGate).store(row, is_real ? gradient.gate : Bytes16{});
    staged(kUp).store(row, is_real ? gradient.up : Bytes16{});
    staged(kAct).store(row, is_real ? act.bytes : Bytes16{});
    if constexpr (!kKeepsBytes) {
      const int32_t lane = segment_lane();
      if (lane % (kSegmentLanes / 2) == 0)
        staged(lane == 0 ? kGate : kUp).store_scale(row, is_real ? gradient.scale_inv : 0.0f);
      if (lane == 1) staged(kAct).store_scale(row, is_real ? act.scale_inv : 0.0f);
    }
  }

  // Stores the transposed tile with two warps.
  MOEJIT_DEVICE static void store_transposed(const GatedGradientParams& params, int64_t tile_row,
                                             int32_t tile_column) {
    constexpr int32_t kFirst = kTransposesGradient ? kGate : kAct;
    for (int32_t part = kFirst + pair(); part < kParts; part += kPairs) {
      const bool is_act = part == kAct;
      const int32_t tile_in_output = tile_column + (part == kUp ? kPitch / 128 : 0);
      const int32_t row = 64 * (ptx::warp_index() % 2) + block_row();
      const int32_t column = block_column();
      ByteBlock block = staged(part).load_block(row, column);
      if constexpr (!kKeepsBytes) rescale(params, part, block, tile_row, tile_in_output);
      const int64_t column_in_output = int64_t{tile_in_output} * 128 + column;
      if (!is_act || column_in_output < kColumns) {
        store_columns(
            block,
            ptx::global(is_act ? params.act_colwise : params.output_colwise) +
                ((tile_row * (is_act ? kColumns : 2 * kPitch) + column_in_output) * 128 + row));
      }
      if (!kKeepsBytes && kPairs < kParts) ptx::sync_named(1 + pair(), 64);  // the slots are read
    }
  }

  // Brings a tile's codes to one scale, and stores it.
  MOEJIT_DEVICE static void rescale(const GatedGradientParams& params, int32_t part,
                                    ByteBlock& block, int64_t tile_row, int32_t tile_in_output) {
    const int32_t half = ptx::warp_index() % 2;
    const RowScalePair scale = staged(part).load_scales(half);
    const auto slots = ptx::shared<uint32_t>(kSlots) + pair() * 2;
    const uint32_t tile_scale = Rescale::scale_of_tile(scale, block, slots, 1 + pair());
    IgnoreFlushed flushed;
    Rescale::rescale(block, scale, tile_scale, flushed);
    if (ptx::lane_index() + 32 * half != 0) return;
    ptx::store(
        ptx::global(part == kAct ? params.act_colwise_scale_inv : params.output_colwise_scale_inv) +
            (tile_in_output * (params.output_columns / 128) + tile_row),
        ptx::float_from_bits(tile_scale));
  }

  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }

  using Inside = ActivationInside<Activation>;
  using Rescale = TileRescale<IdealRescale<E4m3>>;
};

}  // namespace moejit::device
