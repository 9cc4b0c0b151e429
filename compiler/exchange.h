// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "compiler/target.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

// The steps of an exchange of rows between the GPUs of one host, each of which has a part of the
// experts. A call of an exchange runs them in this order on each rank; between kAwait and
// kCombinePush come the experts, for which the R * T_max slots are the tokens.
enum class ExchangeStep {
  kChoices,      // every rank learns the choices of all ranks
  kDispatch,     // rows go to the ranks of their experts
  kAwait,        // waits until all rows have come
  kCombinePush,  // results go home
  kCombineSum,   // home adds them
};

// An exchange, as one rank of several sees it. In a backward call kDispatch sends the rows of dy,
// and the choices are those of the forward call: kChoices is left out.
struct Exchange {
  int64_t ranks = 2;  // 2 to 8
  int64_t rank = 0;
  int64_t experts = 0;     // of all ranks, a multiple of `ranks`; rank r has the r-th part of them
  int64_t top_k = 0;       // 1 to 32
  int64_t max_tokens = 0;  // of a rank, 1 to 16384
  int64_t columns = 0;     // of a row, a multiple of 16
  DType input = DType::kBF16;      // of rows before dispatch: or kF8E4M3, with compact scales
  DType format = DType::kF8E4M3;   // of dispatched rows: kBF16 only of a bf16 input
  float epsilon = 0.0f;            // if dispatch quantizes: the smallest amax of a scale
  bool has_dprobs = false;         // whether gradients of probabilities go home too
  DType topk_ids = DType::kI32;    // or kI64
  DType topk_probs = DType::kF32;  // or kBF16
  int64_t timeout_ms = 10000;      // of each wait for a peer
  bool operator==(const Exchange&) const = default;
};

// Plans a step: one kernel, and its tensors, all of which callers own. A tensor "slots_0" lies in
// the memory of rank 0, and at the same offset from its start "slots_1" in that of rank 1: these
// are the group's memory, which holds zeros before the first exchange. Error kUnsupported: an
// exchange that there are no kernels for.
//
//   step          reads                            writes
//   kChoices      topk_ids, topk_probs [T, K]      choice_ids_r, choice_probs_r [S, K],
//                                                  choice_flags_r; slot_ids, slot_probs [S, K]
//   kDispatch     input [T, H], input_scale_inv,   slots_r [S, H], slot_scales_r, row_flags_r
//                 topk_ids
//   kAwait        row_flags of this rank           epoch
//   kCombinePush  slot_results [S, H] bf16,        results_r [S, H], dprobs_home_r [T_max, K],
//                 slot_dprobs, slot_ids            result_flags_r
//   kCombineSum   slot_results, slot_dprobs,       output [T, H] bf16, dprobs [T, K]
//                 topk_ids; results, dprobs_home,
//                 result_flags of this rank
//
// All of them read `epoch` [1] and add bits to `group_status` [1] of this rank, which lies in the
// group's memory.
Result<Plan> plan_exchange(ExchangeStep step, const Exchange& exchange, const Target& target);

std::string_view to_string(ExchangeStep step);

}  // namespace moejit::compiler
