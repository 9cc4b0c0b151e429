// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/planner/graph.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// The steps of an exchange of rows between the GPUs of one host, each of which has a part of the
// experts. A call of an exchange runs on each rank
//
//   kRouteDispatchPermute, the experts without their permute and unpermute, kCombineRows
//
// where the R * T_max slots are the tokens of the experts. A backward call, whose routing is known,
// has kDispatchPermute instead. If the experts permute rows themselves, it is
//
//   kChoices, kDispatch, kAwait, the experts without their unpermute, kCombineRows.
enum class ExchangeStep {
  kChoices,          // every rank learns the choices of all ranks
  kDispatch,         // rows go to the ranks of their experts
  kDispatchPermute,  // the same, and from the slots to the permuted rows, while others are on the
                     // wire; ends when all rows have come
  kRouteDispatchPermute,  // kChoices, the route of the slots and kDispatchPermute
  kAwait,                 // waits until all rows have come
  kCombineRows,  // the experts' rows of each token are added, sums go home and are added there
};

// An exchange, as one rank of several sees it. In a backward call kDispatch sends the rows of dy.
// The forward call's choices hold, so kChoices is left out.
struct Exchange {
  int64_t ranks = 2;  // 2 to 8
  int64_t rank = 0;
  int64_t experts = 0;     // of all ranks, a multiple of `ranks`; rank r has the r-th part of them
  int64_t top_k = 0;       // 1 to 32
  int64_t shared = 0;      // of these choices, the last ones: shared experts of the token's rank
  int64_t max_tokens = 0;  // of a rank, 1 to 16384
  int64_t columns = 0;     // of a row, a multiple of 16
  DType input = DType::kBF16;      // of rows before dispatch: or kF8E4M3, with compact scales
  DType format = DType::kF8E4M3;   // of dispatched rows: kBF16 only of a bf16 input
  float epsilon = 0.0f;            // if dispatch quantizes: the smallest amax of a scale
  bool has_dprobs = false;         // whether gradients of probabilities go home too
  bool sends_rows = false;         // whether each row goes home, instead of a rank's sum of a token
  DType topk_ids = DType::kI32;    // or kI64
  DType topk_probs = DType::kF32;  // or kBF16
  int64_t timeout_ms = 10000;      // of each wait for a peer
  int64_t sms = 0;                 // that its kernels take; 0: all
  int64_t max_permuted_rows = 0;   // P, of the steps that have permuted rows
  int64_t splits_alignment = 1;    // of the experts' groups of rows, of kRouteDispatchPermute
  bool moves_probs = true;         // whether kDispatchPermute writes their probabilities: forward
  bool tells_tokens = false;       // whether it writes which slot each row is of
  bool keeps_rows = false;         // whether it writes the rows of all slots a second time
  bool operator==(const Exchange&) const = default;
};

std::string_view to_string(ExchangeStep step);

// A step of an exchange as an operation of a graph, and the values that it touches. A value
// "slots_0" lies in the memory of rank 0, and "slots_1" at the same offset in the memory of rank 1.
// These are the group's memory, which holds zeros before the first exchange. No value has a role.
//
//   step              reads                            writes
//   kChoices          topk_ids, topk_probs [T, K]      choice_ids_r, choice_probs_r [S, K],
//                                                      choice_flags_r; slot_ids, slot_probs [S, K];
//                                                      saved_tokens [1]
//   kDispatch         input [T, H], input_scale_inv,   slots_r [S, H], slot_scales_r, row_flags_r;
//                     topk_ids                         tickets_r
//   kDispatchPermute  those of kDispatch; row_map      those of kDispatch; permuted [P, H],
//                     [S, K], slot_probs, counts [E],  permuted_scale_inv, permuted_probs [P],
//                     offs [E + 1]                     row_tokens [P]; kept_rows [S, H],
//                                                      kept_rows_scale_inv; epoch
//   kRouteDispatch-   those of kChoices and kDispatch  those of kChoices and kDispatchPermute;
//   Permute                                            row_map, counts, offs; piece_counts,
//                                                      route_flags_r
//   kAwait            row_flags of this rank           epoch
//   kCombineRows      expert_rows [P, H] bf16,         results_r [S, H] or [T_max, K, H],
//                     row_map, slot_ids, slot_dprobs,  dprobs_home_r [T_max, K], result_flags_r;
//                     topk_ids                         output [T, H] bf16, dprobs [T, K];
//                                                      tickets_r
//
// All of them read `epoch` [1] and add bits to `group_status` [1] of this rank, which lies in the
// group's memory. The experts may add bits to it too: kCombineRows gives every rank the bits of
// all.
struct ExchangeOperation {
  Operation operation;
  std::vector<Value> values;
};

// Makes the operation of a step of an exchange that there are kernels for.
ExchangeOperation exchange_operation(ExchangeStep step, const Exchange& exchange);

// Sets the rank, and the numbers that follow from it, in a kernel of an exchange. Must be called
// after complete_kernel().
void set_rank(KernelPlan& kernel, int64_t rank, int64_t timeout_ms);

// Returns whether join_route_dispatch() takes these three operations in a row, and a kernel has
// room for all of them.
bool can_join_route_dispatch(const Operation& choices, const Operation& route,
                             const Operation& dispatch);

// Joins the exchange of choices, the route of all slots, and the dispatch and permute of rows. So
// rows are on the wire while choices are exchanged and routed. A port has the role that it has in
// its operation, behind "choices.", "route." or "dispatch.". The values are the ones that the
// joined operation adds, with flags in the memory of `rank`, whose operations these are.
ExchangeOperation join_route_dispatch(const Operation& choices, const Operation& route,
                                      const Operation& dispatch, int32_t rank);

}  // namespace moejit::compiler
