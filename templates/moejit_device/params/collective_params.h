// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// What kernels know of an exchange between R ranks whose bytes a transport moves, between kernels:
// templates/moejit_device/exchange/gathered_choices.cuh. A rank's part of a tensor has places for
// T_max tokens. The slots of all ranks are numbered source * T_max + token, S = R * T_max of them.

// Arguments of pack_choices.
struct PackChoicesParams {
  const void* topk_ids;    // [T, K] int32 or int64, experts of all ranks, or -1
  const void* topk_probs;  // [T, K] f32 or bf16
  int32_t* packed_ids;     // [T_max, K], -1 behind the T tokens
  float* packed_probs;     // [T_max, K], 0 behind the T tokens
  int64_t* saved_tokens;   // [1] gets T, for a backward call to compare, or null
  int64_t tokens;          // T
};

// Arguments of take_choices.
struct TakeChoicesParams {
  const int32_t* choice_ids;  // [S, K] the packed choices of all ranks
  const float* choice_probs;  // [S, K]
  int32_t* slot_ids;          // [S, K] experts of this rank, or -1
  float* slot_probs;          // [S, K], 0 where there is no expert of this rank
  int64_t rank;
};

// Arguments of compare_tokens.
struct CompareTokensParams {
  CallTokens call;
};

// Arguments of combine_arrived.
struct CombineArrivedParams {
  const void* results;              // bf16, by the rank of the experts: [R, T_max, H] sums of a
                                    // token's rows, or [R, T_max, K, H] the row of each choice
  const float* dprobs_of_ranks;     // [R, T_max, K], or null
  const uint32_t* status_of_ranks;  // [R]
  const void* topk_ids;             // [T, K] int32 or int64
  void* output;                     // [T, H] bf16
  void* dprobs;                     // [T, K] f32 or bf16, or null
  uint32_t* status;                 // [1] the words of all ranks are or-ed in
  int64_t tokens;                   // T
};

}  // namespace moejit::device
