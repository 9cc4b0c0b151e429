// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels share that compute the gradient of a gated activation in tiles of 128 rows.

#include "moejit_device/params/gated_gradient_params.h"
#include "moejit_device/stage/contract.cuh"
#include "moejit_device/transpose/permuted_tile.cuh"

namespace moejit::device {

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
