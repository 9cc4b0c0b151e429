// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"
#include "moejit_device/params/route_params.h"

namespace moejit::device {

// The most ranks of a group.
inline constexpr int32_t kMostRanks = 8;

// Words of a rank by which the CTAs of its kernels share their work: tickets of
// exchange/unit_walk.cuh, and claims of SMs of exchange/kernel_sms.cuh, which tells so many SMs
// apart.
inline constexpr int32_t kTickets = 5, kSmPlaces = 256;
inline constexpr int32_t kTicketWords = kTickets + 1 + 2 * kSmPlaces;

// Units of a combine that a CTA has in shared memory: exchange/unit_queue.cuh.
inline constexpr int32_t kUnitPlaces = 4;

// What kernels of rank `rank` know of an exchange between R ranks. All ranks have memory of the
// same form; where a record has an array of pointers, entry r is the place in rank r's memory, null
// from R on. The slots of a rank are numbered source * T_max + token, S = R * T_max of them.
struct GroupParams {
  uint32_t* epoch;   // [1] of the last exchange whose rows have arrived here; counts from 0
  uint32_t* status;  // [1] kExchange bits are or-ed in
  int64_t rank;
  int64_t timeout_ns;  // of each wait for a peer
};

// Arguments of exchange_choices.
struct ExchangeChoicesParams {
  const void* topk_ids;                // [T, K] int32 or int64, experts of all ranks, or -1
  const void* topk_probs;              // [T, K] f32 or bf16
  int32_t* choice_ids[kMostRanks];     // [R, T_max, K]: of each source
  float* choice_probs[kMostRanks];     // [R, T_max, K]
  uint32_t* choice_flags[kMostRanks];  // [R, parts]
  int32_t* slot_ids;                   // [S, K] experts of this rank, or -1
  float* slot_probs;                   // [S, K], 0 where there is no expert of this rank
  int64_t* saved_tokens;               // [1] gets T, for a backward call to compare, or null
  GroupParams group;
  int64_t tokens;  // T
};

// Arguments of dispatch_rows.
struct DispatchRowsParams {
  const void* input;                // [T, H] bf16, or e4m3 with scales
  const float* input_scale_inv;     // [T, ceil(H / 128)] of e4m3
  const void* topk_ids;             // [T, K] int32 or int64
  void* slots[kMostRanks];          // [S, H]
  float* slot_scales[kMostRanks];   // [S, ceil(H / 128)] of e4m3
  uint32_t* row_flags[kMostRanks];  // [R, chunks]
  const int64_t* saved_tokens;      // [1] T of the forward call; null: nothing is compared
  uint32_t* tickets;                // [kTicketWords] of this rank, see exchange/unit_walk.cuh
  GroupParams group;
  int64_t tokens;  // T
};

// Arguments of dispatch_permute.
struct DispatchPermuteParams {
  const void* input;                // [T, H] bf16, or e4m3 with scales
  const float* input_scale_inv;     // [T, ceil(H / 128)] of e4m3
  const void* topk_ids;             // [T, K] int32 or int64
  const int32_t* row_map;           // [S, K] the row of a choice, or -1
  const float* slot_probs;          // [S, K] where probabilities move
  const int32_t* counts;            // [E], E experts of this rank
  const int32_t* offs;              // [E + 1]
  void* slots[kMostRanks];          // [S, H]
  float* slot_scales[kMostRanks];   // [S, ceil(H / 128)] of e4m3
  uint32_t* row_flags[kMostRanks];  // [R, chunks]
  void* output;                     // [P, H]
  float* output_scale_inv;          // [P, ceil(H / 128)] of e4m3
  float* output_probs;              // [P] where probabilities move
  int32_t* row_tokens;              // [P] the slot of a row, or null
  void* kept_output;                // [S, H] the rows that slots have, or null
  float* kept_scale_inv;            // [S, ceil(H / 128)] of e4m3, or null
  const int64_t* saved_tokens;      // [1] T of the forward call; null: nothing is compared
  uint32_t* tickets;                // [kTicketWords] of this rank, see exchange/unit_walk.cuh
  GroupParams group;
  int64_t tokens;  // T
};

// Arguments of route_dispatch_permute: the arguments of its parts, which share most tensors.
struct RouteDispatchPermuteParams {
  ExchangeChoicesParams choices;
  RouteParams route;  // of the S slots
  DispatchPermuteParams dispatch;
  int32_t* piece_counts;  // [pieces, E] rows of an expert in a piece of the choices
  uint32_t* route_flags;  // [2, pieces] of this rank
};

// Arguments of await_rows.
struct AwaitRowsParams {
  const uint32_t* row_flags;  // [R, chunks], own
  GroupParams group;
};

// Arguments of combine_rows.
struct CombineRowsParams {
  const void* expert_rows;             // [P, H] bf16: what this rank's experts made of their rows
  const int32_t* row_map;              // [S, K] the row of a choice, or -1
  const int32_t* slot_ids;             // [S, K]
  const float* slot_dprobs;            // [S, K], or null
  const void* topk_ids;                // [T, K] int32 or int64
  void* results[kMostRanks];           // bf16 at home: [S, H] sums, by the rank of the experts and
                                       // token, or [T_max, K, H] rows, by choice
  float* dprobs_home[kMostRanks];      // [T_max, K] at home
  uint32_t* result_flags[kMostRanks];  // [R, chunks] at home
  void* output;                        // [T, H] bf16
  void* dprobs;                        // [T, K] f32 or bf16, or null
  uint32_t* tickets;                   // [kTicketWords] of this rank, see exchange/unit_walk.cuh
  GroupParams group;
  int64_t tokens;  // T
};

}  // namespace moejit::device
