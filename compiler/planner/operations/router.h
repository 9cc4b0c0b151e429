// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/router.h"

#include <cstdint>

namespace moejit::compiler {

// Chooses K experts of each token. Reads logits [T, A], and router_bias [A] and expert_scale [A] if
// the formula has them. Writes topk_ids [T, K], or reads them if they are given, and topk_probs [T,
// K]; with zero experts also chosen_ids [T, K] and zero_probs [T]. Adds to counts [A] if wanted,
// and to the sums of the formula's losses: unbiased_counts [A], score_sums [A] and z_sum [1]. Or-s
// bits into status if wanted.
struct Router {
  RouterFormula formula;
  int32_t experts = 0;  // with zero experts
  int32_t top_k = 0;
  DType topk_ids = DType::kI32;  // or kI64
};

// Reads logits, expert_scale and topk_ids of Router, or chosen_ids if there are zero experts. Also
// reads dprobs [T, K], dzero_probs [T] if there are zero experts, and what its losses need: counts
// [A], aux_coefficient [1] and z_coefficient [1]. Writes dlogits [T, A], and dexpert_scale [T, K]
// if there is such a factor.
struct RouterBackward {
  RouterFormula formula;
  int32_t experts = 0;  // with zero experts
  int32_t top_k = 0;
  DType topk_ids = DType::kI32;  // or kI64
};

}  // namespace moejit::compiler
