// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scales with which a tile of gated gradients is cast (transpose/gated_gradient_columns.cuh),
// by rows and by columns: found in the tile, or known beforehand.
//
// fetch_row() starts the loads that a row's scale needs, cast_row() gives what a row is cast to,
// and store_row() stores that as the store stage `Store` does. All lanes of a warp call them
// together. find_column_scales() gives the scales of a lane's eight columns, and
// store_column_scales() stores them if they are new. kSlotBytes is the shared memory that two warps
// share for it.

#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/stage/quantize_rounded.cuh"
#include "moejit_device/stage/store_gated_rows.cuh"
#include "moejit_device/stage/store_scaled_rows.cuh"
#include "moejit_device/transpose/gated_tile.cuh"
#include "moejit_device/transpose/gated_values.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

// Eight columns of an operand of wgrad, in 128 rows of it.
struct OperandColumns {
  bool is_act;       // of the activation, not of the gradient
  bool exist;        // inside the operand
  int32_t tile_row;  // of tiles of the operand
  int32_t columns;   // of the operand
  int32_t first;     // column
};

// Scales for 128 columns of a row, and for 128 rows of a column. Uses output_scale_inv [P, 2B],
// output_colwise_scale_inv [Pc / 128, 2C'] and act_colwise_scale_inv [Pc / 128, C].
template <uint32_t kEpsilonBits>
struct ScalesOfTile {
  static constexpr int32_t kSlotBytes = kPairSlotBytes, kRowBytes = 0;
  using CastRow = QuantizedGatedGradient;

  MOEJIT_DEVICE static void keep_expert(int32_t) {}
  template <typename Position>
  MOEJIT_DEVICE static void prepare_row(const GatedGradientParams&, const Position&, int32_t) {}
  MOEJIT_DEVICE static CastRow cast_row(int32_t, const Bf16GatedGradient& gradient) {
    return Quantize1x128Rounded<kEpsilonBits>::apply(gradient);
  }
  template <typename Store, typename Position>
  MOEJIT_DEVICE static void store_row(const GatedGradientParams& params, const Position& at,
                                      const CastRow& row) {
    Store::store(row_chain_params(params), at, Nothing{}, row);
  }
  template <typename ColumnsOf>
  MOEJIT_DEVICE static void find_column_scales(const GatedGradientParams&, const ColumnsOf&,
                                               const ValueBlock& block,
                                               ptx::SharedPtr<Bytes16> slots, int32_t barrier,
                                               BlockScale (&scale)[kValueBlockColumns]) {
    block.template find_scales<kEpsilonBits>(slots, barrier, scale);
  }
  MOEJIT_DEVICE static void store_column_scales(const GatedGradientParams& params,
                                                const OperandColumns& at,
                                                const BlockScale (&scale)[kValueBlockColumns]) {
    float* const scales =
        at.is_act ? params.act_colwise_scale_inv : params.output_colwise_scale_inv;
    store_scales(scale, column_scale(scales, at.columns, at.tile_row, at.first));
  }
};

// Known scales of an expert's columns, and no rows. Uses column_scale_inv [E, 2C'] and
// act_column_scale_inv [E, C].
struct ScalesOfColumns {
  static constexpr int32_t kSlotBytes = 0, kRowBytes = 16;
  using CastRow = CodesGatedGradient;

  // Leaves the expert in shared memory until columns are cast: registers are few.
  MOEJIT_DEVICE static void keep_expert(int32_t expert) {
    if (ptx::thread_index() == 0) ptx::store(kept_expert(), expert);
  }
  template <typename Position>
  MOEJIT_DEVICE static void prepare_row(const GatedGradientParams&, const Position&, int32_t) {}
  MOEJIT_DEVICE static CastRow cast_row(int32_t, const Bf16GatedGradient& gradient) {
    return {.gate = {}, .up = {}, .dprob = gradient.dprob};
  }
  template <typename Store, typename Position>
  MOEJIT_DEVICE static void store_row(const GatedGradientParams& params, const Position& at,
                                      const CastRow& row) {
    Store::store(row_chain_params(params), at, Nothing{}, row);
  }
  template <typename ColumnsOf>
  MOEJIT_DEVICE static void find_column_scales(const GatedGradientParams& params,
                                               const ColumnsOf& columns_of, const ValueBlock&,
                                               ptx::SharedPtr<Bytes16>, int32_t,
                                               BlockScale (&scale)[kValueBlockColumns]) {
    const OperandColumns at = columns_of();
    if (!at.exist) return;
    const auto scales =
        ptx::global(at.is_act ? params.act_column_scale_inv : params.column_scale_inv);
    load_scales(scales + (ptx::load(kept_expert()) * at.columns + at.first), scale);
  }
  MOEJIT_DEVICE static void store_column_scales(const GatedGradientParams&, const OperandColumns&,
                                                const BlockScale (&)[kValueBlockColumns]) {}

 private:
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> kept_expert() {
    return ptx::shared<int32_t>(static_cast<uint32_t>(StagedValues::kBytes));
  }
};

// As ScalesOfColumns, and a scale for the whole of each row, which follows from the largest
// magnitudes of its segments, row_amax [P, B]. Uses output_scale_inv [P] too.
template <uint32_t kEpsilonBits>
struct ScalesOfRows : ScalesOfColumns {
  // The row's largest magnitude, for each lane that holds a part of it: none reads another's, and
  // registers are few.
  static constexpr int32_t kRowBytes = ScalesOfColumns::kRowBytes + 128 * kSegmentLanes * 4;
  struct CastRow {
    CodesGatedGradient codes;
    float scale_inv;
  };

  template <int32_t kColumns>
  MOEJIT_DEVICE static void prepare_row(const GatedGradientParams& params,
                                        const SegmentPosition<kColumns>& at, int32_t row) {
    constexpr int32_t kSegments = SegmentPosition<kColumns>::kPerRow;
    const auto amax_of = ptx::global(params.row_amax) + at.row * kSegments;
    float amax = 0.0f;
    for (int32_t i = segment_lane(); i < kSegments; i += kSegmentLanes) {
      if (at.is_real()) amax = ptx::max_number(amax, ptx::load(amax_of + i));
    }
    ptx::store(slot(row), max_of_segment(amax));
  }
  MOEJIT_DEVICE static CastRow cast_row(int32_t row, const Bf16GatedGradient& gradient) {
    const BlockScale scale = e4m3_scale_from_amax<kEpsilonBits>(ptx::load(slot(row)));
    return {.codes = codes_of(gradient, scale.scale), .scale_inv = scale.scale_inv};
  }
  template <typename Store, typename Position>
  MOEJIT_DEVICE static void store_row(const GatedGradientParams& params, const Position& at,
                                      const CastRow& row) {
    StoreScaledRows<Store>::store(row_chain_params(params), at, Nothing{}, row.codes,
                                  row.scale_inv);
  }

 private:
  MOEJIT_DEVICE static ptx::SharedPtr<float> slot(int32_t row) {
    return ptx::shared<float>(
               static_cast<uint32_t>(StagedValues::kBytes + ScalesOfColumns::kRowBytes)) +
           (row * kSegmentLanes + segment_lane());
  }
};

}  // namespace moejit::device
