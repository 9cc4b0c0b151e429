// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels share that compute the gradient of a gated activation in tiles of 128 rows.

#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/stage/contract.cuh"
#include "moejit_device/transpose/output_groups.cuh"

namespace moejit::device {

// The rows of a tile, and its place among the tiles of gate or of up.
template <int32_t kColumns>
struct GatedTile {
  RowTile rows;
  int32_t existing;  // rows that the group owns, from the first on, real and pad
  int32_t column;    // of tiles

  MOEJIT_DEVICE GatedTile(const GatedGradientParams& params, const RowTile& of, int32_t number)
      : rows(of), column(number) {
    const int64_t end =
        smaller(int64_t{ptx::load(ptx::global(params.offs) + (of.group + 1))}, params.rows);
    existing = static_cast<int32_t>(smaller(end - of.first, int64_t{128}));
  }
  MOEJIT_DEVICE SegmentPosition<kColumns> position(int32_t row) const {
    return {rows.first + row, column,
            row < rows.count ? RowKind::kReal
            : row < existing ? RowKind::kPad
                             : RowKind::kAbsent};
  }
};

// Returns what the store stages of row chains use.
MOEJIT_DEVICE RowChainParams row_chain_params(const GatedGradientParams& params) {
  RowChainParams chain = {};
  chain.output = params.output;
  chain.output_scale_inv = params.output_scale_inv;
  chain.output_dprobs = params.output_dprobs;
  return chain;
}

// The store stage of rows that nobody wants.
struct StoreNothing {
  template <typename Position, typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams&, const Position&, const Nothing&,
                                  const Segment&) {}
};

}  // namespace moejit::device
