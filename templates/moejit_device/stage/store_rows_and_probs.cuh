// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of the backward pass's unpermute, which also brings the gradients of the
// probabilities back to their tokens.

#include "moejit_device/core/probability.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// Every row of the input, as StoreRows. Beside them, for each choice of a token, the fp32 sum of
// its row's blocks of the gradient in ascending order, from 0; 0 where it has no row. Uses row_map
// [T, K], dprobs_blocks [P, kDprobsColumns], dprobs [T, K] and what StoreRows uses; with
// kAddsBiasDprobs also bias_dprobs [P], which is added last. Prob is the type of dprobs: float, or
// Bf16, to which a sum is rounded once.
template <int32_t kColumns_, int32_t kTopK, int32_t kDprobsColumns, bool kAddsBiasDprobs = false,
          typename Prob = float>
struct StoreRowsAndProbs {
  static_assert(kTopK > 0, "a token is routed to at least one expert");
  static_assert(kDprobsColumns > 0, "the gradient of a row has at least one block");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = false;
  using Rows = AllRows;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const Segment& segment) {
    StoreRows<kColumns>::store(params, at, where, segment);
  }
  // A thread takes a choice. They fill few CTAs, the first ones, which the others do not wait for;
  // beside the rows, a warp that has one would hold its place for these loads too.
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    const int64_t choices = params.rows * kTopK;
    const int64_t threads = int64_t{ptx::cta_count()} * ptx::thread_count();
    int64_t choice = int64_t{ptx::cta_index()} * ptx::thread_count() + ptx::thread_index();
    for (; choice < choices; choice += threads) {
      const int32_t row = ptx::load(ptx::global(params.row_map) + choice);
      const float sum = row >= 0 ? sum_of_row(params, row) : 0.0f;
      store_prob(ptx::global(static_cast<Prob*>(params.dprobs)) + choice, sum);
    }
  }

 private:
  MOEJIT_DEVICE static float sum_of_row(const RowChainParams& params, int64_t row) {
    const auto blocks = ptx::global(params.dprobs_blocks) + row * kDprobsColumns;
    float sum = 0.0f;
    if constexpr (kDprobsColumns % 4 == 0) {
#pragma unroll 4
      for (int32_t b = 0; b < kDprobsColumns; b += 4) {
        const Bytes16 four = ptx::load(ptx::as<const Bytes16>(blocks + b));
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) sum = ptx::add(sum, ptx::float_from_bits(four.word[i]));
      }
    } else {
#pragma unroll 8
      for (int32_t b = 0; b < kDprobsColumns; ++b) sum = ptx::add(sum, ptx::load(blocks + b));
    }
    if constexpr (kAddsBiasDprobs) {
      sum = ptx::add(sum, ptx::load(ptx::global(params.bias_dprobs) + row));
    }
    return sum;
  }
};

}  // namespace moejit::device
