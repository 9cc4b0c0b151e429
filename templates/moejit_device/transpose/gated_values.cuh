// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels share that compute the gradient of a gated activation, and the activation itself, in
// tiles of 128 rows by 128 columns of gate and of up, rounded to bf16. Three tiles of bf16 in
// shared memory hold what was read, all of which is on its way at once; eight lanes take a row
// segment as in the row chain. No access to shared memory meets a bank twice: rows are 256 bytes,
// and eight lanes take 128 of them.

#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/transform.cuh"
#include "moejit_device/transpose/gated_tile.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

// Three tiles of bf16 in shared memory, 128 rows by 128 columns each, row after row. kAct holds the
// gradient of the activation until the activation itself is computed.
struct StagedValues {
  enum Tile { kGate, kUp, kAct, kTiles };
  static constexpr int32_t kRowRuns = 16;  // of 16 bytes
  static constexpr int32_t kTileBytes = 128 * kRowRuns * 16;
  static constexpr int32_t kBytes = kTiles * kTileBytes;

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

// A row segment of every eight lanes, rounded to bf16.
struct ComputedGatedRow {
  Bf16Segment act;  // times the probability
  Bf16GatedGradient gradient;
};

// The rows of a tile, from memory to what is computed of them, with kThreads threads.
template <int32_t kColumns, typename Activation, int32_t kThreads>
class GatedValues {
 public:
  static_assert(kThreads % 64 == 0 && 128 % (kThreads / kSegmentLanes) == 0,
                "the threads hold a whole number of rows at a time, 128 of them in whole turns");

  // Calls visit(position, row of the tile, probability) for this lane's row of every turn, in
  // order, once its values lie in shared memory: zeros where it is not real. All copies are on
  // their way before the first call; meanwhile it calls prepare(position, row of the tile) for each
  // row.
  template <typename Prepare, typename Visit>
  MOEJIT_DEVICE static void for_each_row(const GatedGradientParams& params,
                                         const GatedTile<kColumns>& tile, const Prepare& prepare,
                                         const Visit& visit) {
#pragma unroll
    for (int32_t turn = 0; turn < kTurns; ++turn) copy_row(params, tile, row_of_turn(turn));
#pragma unroll
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      prepare(tile.position(row_of_turn(turn)), row_of_turn(turn));
    }
    visit_from<0>(params, tile, visit);
  }

  // Returns what TransformActivationProbability and TransformActivationBackward compute of a row in
  // shared memory, rounded to bf16.
  MOEJIT_DEVICE static ComputedGatedRow compute(const SegmentPosition<kColumns>& at, int32_t row,
                                                float prob) {
    const ExistingRuns exists = at.existing_runs();
    const ValueSegment gate = unpack_bf16(StagedValues::load(StagedValues::kGate, row));
    const ValueSegment up = unpack_bf16(StagedValues::load(StagedValues::kUp, row));
    const ValueSegment gradient = unpack_bf16(StagedValues::load(StagedValues::kAct, row));
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

 private:
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;
  using Inside = ActivationInside<Activation>;

  // Returns this lane's row of the tile.
  MOEJIT_DEVICE static int32_t row_of_turn(int32_t turn) {
    return turn * kRowsPerTurn + ptx::thread_index() / kSegmentLanes;
  }

  // Starts the copies of this thread's part of a row, zeros where it is not real.
  MOEJIT_DEVICE static void copy_row(const GatedGradientParams& params,
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
      copy(StagedValues::kGate, input, 2 * at.row);
      copy(StagedValues::kUp, input, 2 * at.row + 1);
      copy(StagedValues::kAct, gradient, at.row);
    }
    ptx::commit_async_copies();
  }

  // Turns from kTurn on, in the order of their copies.
  template <int32_t kTurn, typename Visit>
  MOEJIT_DEVICE static void visit_from(const GatedGradientParams& params,
                                       const GatedTile<kColumns>& tile, const Visit& visit) {
    if constexpr (kTurn < kTurns) {
      const int32_t row = row_of_turn(kTurn);
      const SegmentPosition<kColumns> at = tile.position(row);
      const float prob = at.is_real() ? ptx::load(ptx::global(params.probs) + at.row) : 0.0f;
      ptx::wait_async_copies<kTurns - 1 - kTurn>();
      visit(at, row, prob);
      visit_from<kTurn + 1>(params, tile, visit);
    }
  }
};

}  // namespace moejit::device
