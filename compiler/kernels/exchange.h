// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// The kernels of an exchange of rows between the GPUs of one host, each of which has a part of the
// experts. templates/moejit_device/exchange/group.cuh says how it works.

// The numbers that all kernels of an exchange agree on.
struct ExchangeShape {
  int32_t ranks = 2;
  int32_t rank_experts = 0;  // experts of each rank, with shared ones
  int32_t top_k = 0;         // choices of a token
  int32_t shared = 0;        // of the choices, the last ones: shared experts of the token's rank
  int32_t max_tokens = 0;    // of a rank
  int32_t chunk_tokens = 0;  // neighboring tokens of a rank that share a flag
  int32_t sms = 0;           // that kernels of an exchange take, 0: all; at least sender_sms
  DType topk_ids = DType::kI32;  // or kI64
  bool operator==(const ExchangeShape&) const = default;
};

// Returns how many flags the rows of a rank have.
int32_t chunks_of(const ExchangeShape& exchange);

// Sends the choices of each rank to all ranks, and makes the choices of this rank's experts from
// them.
struct ExchangeChoicesSpec {
  ExchangeShape exchange;
  DType probs = DType::kF32;  // or kBF16
  int32_t parts = 1;          // of a rank's choices, each with a flag
  int32_t threads = 256;
  bool operator==(const ExchangeChoicesSpec&) const = default;
};

// Returns for how many rows of a chunk a CTA has room in shared memory, half of which it sends at a
// time. 0: rows do not fit, and its threads store them.
int32_t rows_in_shared(const ExchangeShape& exchange, DType dtype, int32_t columns);

// Sends each token's row to the ranks of its experts.
struct DispatchRowsSpec {
  ExchangeShape exchange;
  int32_t columns = 0;
  DType input = DType::kBF16;     // or kF8E4M3, with compact scales
  DType output = DType::kF8E4M3;  // kBF16 only of a bf16 input
  float epsilon = 0.0f;           // if it quantizes: the smallest amax of a scale
  int32_t sender_sms = 256;       // SMs that send: all, unless the exchange takes fewer
  int32_t rows_in_shared = 0;     // that a CTA has in shared memory; 0: threads store rows
  int32_t threads = 256;
  int32_t segments_in_flight = 4;
  bool operator==(const DispatchRowsSpec&) const = default;
};

// Waits for the rows of all ranks, and begins the epoch's second half.
struct AwaitRowsSpec {
  ExchangeShape exchange;
  int32_t threads = 512;
  bool operator==(const AwaitRowsSpec&) const = default;
};

// Sends each token's row to the ranks of its experts. Stores the rows of all slots to their
// permuted rows, with pad rows, as kPermuted stores of a row chain do. At the end all rows have
// come, and the epoch's second half begins.
struct DispatchPermuteSpec {
  ExchangeShape exchange;
  int32_t columns = 0;
  DType input = DType::kBF16;     // or kF8E4M3, with compact scales
  DType output = DType::kF8E4M3;  // kBF16 only of a bf16 input
  float epsilon = 0.0f;           // if it quantizes: the smallest amax of a scale
  bool moves_probs = true;
  bool tells_tokens = false;   // whether it writes which slot each row is of
  bool keeps_rows = false;     // whether it writes the rows of all slots too
  int32_t sender_sms = 64;     // SMs that send before they receive
  int32_t rows_in_shared = 0;  // that a CTA has in shared memory; 0: threads store rows
  int32_t threads = 256;
  int32_t segments_in_flight = 4;
  bool operator==(const DispatchPermuteSpec&) const = default;
};

// Does in one kernel what ExchangeChoicesSpec, the route of all slots and DispatchPermuteSpec do.
struct RouteDispatchPermuteSpec {
  DispatchPermuteSpec dispatch;
  DType probs = DType::kF32;  // of the choices; or kBF16
  int32_t parts = 1;          // of a rank's choices, each with a flag
  int32_t splits_alignment = 1;
  bool has_colwise_offs = false;  // whether it writes where groups of columns start
  bool operator==(const RouteDispatchPermuteSpec&) const = default;
};
// Returns how many CTAs exchange and route choices.
int32_t pieces_of(const ExchangeShape& exchange, int32_t parts);

// Adds the rows that experts made of each token. It sends the sums of other ranks' tokens home, and
// adds sums that come home to its own tokens. With `sends_rows` it sends each row as it is. Home
// adds all rows of a token in the order of one rank with all experts.
struct CombineRowsSpec {
  ExchangeShape exchange;
  bool sends_rows = false;
  int32_t columns = 0;
  bool has_dprobs = false;
  DType probs = DType::kF32;   // of dprobs; or kBF16
  int32_t sender_sms = 64;     // SMs that send before they receive
  int32_t rows_in_shared = 0;  // that a CTA has in shared memory; 0: threads load rows
  int32_t threads = 256;       // 64 of which add nothing where rows are in shared memory
  bool operator==(const CombineRowsSpec&) const = default;
};

// Returns how many rows a CTA has in shared memory while it adds them. 0: threads load the rows
// themselves, which are too long or no whole runs of 16 bytes.
int32_t added_rows_in_shared(int32_t columns);

std::string to_string(const ExchangeChoicesSpec& spec);
std::string to_string(const DispatchRowsSpec& spec);
std::string to_string(const DispatchPermuteSpec& spec);
std::string to_string(const RouteDispatchPermuteSpec& spec);
std::string to_string(const AwaitRowsSpec& spec);
std::string to_string(const CombineRowsSpec& spec);

}  // namespace moejit::compiler
