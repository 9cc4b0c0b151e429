// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// A gated activation's gradient by rows, and it and the activation as operands of wgrad: C columns
// of gate and of up, C' = C rounded up to 128, B = C' / 128, P rows, E groups, Pc output columns.
// The rows of group e from offs[e] on become the columns from output_offs[e] on. Other rows, and
// columns that belong to no group, are left alone; pad rows, and the columns from a group's count
// to the next multiple of 128, become zeros.
//
// Where rows have one scale each, and columns one for all tokens of an expert, a first kernel
// writes largest magnitudes in place of the gradients and the activation: output f32 [P, B] of each
// segment of gate and up together, output_colwise bf16 [Pc / 128, 2C"] and act_colwise bf16 [Pc /
// 128, C] of the columns of 128 rows. A second one casts. A half of the output, and of its
// transpose, has C" = C or C' columns.
struct GatedGradientParams {
  const void* input;                // bf16 [P, 2C], gate and up
  const void* gradient;             // bf16 [P, C], of the activation
  const float* probs;               // [P]
  const int32_t* counts;            // [E]
  const int32_t* offs;              // [E + 1]
  const int32_t* output_offs;       // [E + 1], multiples of 128; may be offs
  void* output;                     // e4m3 [P, 2C'], the gradients of gate and up, where wanted;
                                    // with known scales e4m3 or e5m2
  float* output_scale_inv;          // [P, 2B], where wanted; of whole rows [P]
  float* output_dprobs;             // [P, B], parts of the probability's gradient, where wanted
  uint8_t* output_colwise;          // [Pc / 128, 2C', 128], the same gradients, if wanted
  float* output_colwise_scale_inv;  // [2B, Pc / 128], of each 128x128 tile
  uint8_t* act_colwise;             // e4m3 [Pc / 128, C, 128], act times the probability
  float* act_colwise_scale_inv;     // [B, Pc / 128]
  const float* expert_scales;      // [E], known scales: what gradients are multiplied by; there are
                                   // no scales in the outputs then
  const float* act_expert_scales;  // [E], likewise of the activation
  const float* row_amax;           // [P, B], of the first of two kernels
  const float* column_scale_inv;   // [E, 2C"], known scales of the gradients' columns
  const float* act_column_scale_inv;  // [E, C], likewise of the activation's
  float* amax;             // [columns of a state], with known scales, or null: not negative;
                           // is raised to the largest magnitudes of each expert's gradients
  int64_t rows;            // P, may be 0; no row from P on is read, whatever counts say
  int64_t output_columns;  // Pc, a multiple of 128, may be 0
  CallTokens call;
};

}  // namespace moejit::device
