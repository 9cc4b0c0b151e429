// SPDX-License-Identifier: Apache-2.0
#pragma once

// Brings the gradients of probabilities back from rows to the choices of tokens: beside the rows of
// dx, or, where nobody asks for those, in a kernel of its own.

#include "moejit_device/core/probability.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/unpermute_dprobs_params.h"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Stores for each choice of a token the fp32 sum of its row's blocks in ascending order, from 0; 0
// where it has no row. Uses row_map [T, K], dprobs_blocks [P, kDprobsColumns] and dprobs [T, K] of
// a record; with kAddsBiasDprobs also bias_dprobs [P], which is added last. Prob is the type of
// dprobs: float, or Bf16, to which a sum is rounded once.
template <int32_t kTopK, int32_t kDprobsColumns, bool kAddsBiasDprobs, typename Prob>
struct DprobsOfChoices {
  static_assert(kTopK > 0, "a token is routed to at least one expert");
  static_assert(kDprobsColumns > 0, "the gradient of a row has at least one block");

  // A thread takes a choice.
  template <typename Params>
  MOEJIT_DEVICE static void store(const Params& params) {
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
  template <typename Params>
  MOEJIT_DEVICE static float sum_of_row(const Params& params, int64_t row) {
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

// Stores the gradients of all choices, and reads no rows of dx.
template <int32_t kTopK, int32_t kDprobsColumns, bool kAddsBiasDprobs, int32_t kThreads_,
          typename Prob = float>
struct UnpermuteDprobs {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1024 / kThreads;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const UnpermuteDprobsParams& params) {
    if (has_other_tokens(params.call)) return;
    DprobsOfChoices<kTopK, kDprobsColumns, kAddsBiasDprobs, Prob>::store(params);
  }
};

}  // namespace moejit::device
