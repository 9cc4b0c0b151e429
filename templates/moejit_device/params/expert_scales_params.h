// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Largest magnitudes to scales: E groups, and M magnitudes of each row, or of each matrix. The
// fields of rows are null where each group is a matrix.
struct ExpertScalesParams {
  const float* amax;      // [P, M] of rows, not NaN; [E, M] of matrices
  const int32_t* counts;  // [E]: real rows of each group; others are not read
  const int32_t* offs;    // [E + 1]: first row of each group
  float* scale;           // [E]: what values are multiplied by
  float* scale_inv;       // [E]: what codes are multiplied by
  const uint32_t* skip;   // [1] or null; where it is not 0, nothing is written
  int64_t rows;           // P; no row from P on is read, whatever counts say
  CallTokens call;
};

}  // namespace moejit::device
