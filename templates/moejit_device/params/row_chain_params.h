// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Arguments of the row chain skeleton. A stage uses the fields that its comment names; the others
// are null. T tokens, K top-k, E local experts, P permuted rows, C columns of the output row or of
// each half of a gated one, B = ceil(C / 128). Data is row-major and 16-byte aligned.
struct RowChainParams {
  // Load stages
  const void* input;             // kRows: bf16 [rows, C]; kQuantizedRows: e4m3 [rows, C];
                                 // kTwoLevelRows: e2m1 [rows, C / 2]; gated: bf16 [P, 2C];
                                 // kUpRows, kCombinedRows: bf16 [P, C]
  const float* input_scale_inv;  // kQuantizedRows: [rows, B]; kTwoLevelRows: e4m3 [rows, 8B]
  const void* gradient;          // gated and up gradient rows: bf16 [P, C]
  const void* probs;             // gated, up: f32 [P]; kPermuted stores: topk_probs [T, K], f32
                                 // or bf16
  const int32_t* row_map;        // [T, K], kCombinedRows and kPermuted stores
  const int32_t* counts;         // [E], grouped and permuted stores
  const int32_t* offs;           // [E + 1], grouped and permuted stores
  // Store stages
  void* output;             // e4m3 or bf16 [rows, C], e4m3 or e5m2 with expert_scales;
                            // kGroupedGatedRows: [P, 2 * pitch]; e2m1 [P, C / 2];
                            // stores of amax: f32 [P, ceil(C / 512)]
  float* output_scale_inv;  // if quantized: f32 [rows, B]; kGroupedGatedRows: f32 [P, 2B];
                            // of e2m1: e4m3 [P, 8B]
  float* output_probs;      // [P], permuted stores
  int32_t* row_tokens;      // [P], permuted stores that are asked for it: whose row it is
  float* output_dprobs;     // [P, B], kGroupedGatedRows, kGroupedUpRows, kGroupedDprobs
  void* kept_output;        // [T, C], kRowsAndPermuted: the rows before permutation
  float* kept_scale_inv;    // [T, B], kRowsAndPermuted
  int64_t rows;             // of the input: T, or P where groups say which rows exist
  // Gradients of the probabilities
  const float* dprobs_blocks;  // [P, dprobs_columns], kRowsAndProbs: of a row, by block
  void* dprobs;                // [T, K] f32 or bf16, kRowsAndProbs: sums of the blocks
  const float* bias_dprobs;    // [P], kRowsAndProbs if asked for: added after the blocks
  const float* expert_scales;  // [E], stores that cast: what values are multiplied by
  const uint32_t* skip;        // [1] or null, rows of matrices: where it is not 0, nothing is
                               // written
  float* amax;                 // [columns of a state], stores that record: not negative; is raised
                               // to the largest magnitudes of each expert's rows
  CallTokens call;
};

}  // namespace moejit::device
