// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// The kernels of an exchange of rows between the GPUs of one host, each of which has a part of the
// experts: templates/moejit_device/exchange/group.cuh tells how it works.

// The numbers that all kernels of an exchange agree on.
struct ExchangeShape {
  int32_t ranks = 2;
  int32_t rank_experts = 0;  // experts of each rank
  int32_t top_k = 0;
  int32_t max_tokens = 0;        // of a rank
  int32_t chunk_tokens = 0;      // neighboring tokens of a rank that share a flag
  DType topk_ids = DType::kI32;  // or kI64
  bool operator==(const ExchangeShape&) const = default;
};

// Returns how many flags the rows of a rank have.
int32_t chunks_of(const ExchangeShape& exchange);

// Tells all ranks the choices of each, and makes of them those of this rank's experts.
struct ExchangeChoicesSpec {
  ExchangeShape exchange;
  DType probs = DType::kF32;  // or kBF16
  int32_t parts = 1;          // CTAs, and flags of a rank
  int32_t threads = 256;
  bool operator==(const ExchangeChoicesSpec&) const = default;
};

// Sends each token's row to the ranks of its experts.
struct DispatchRowsSpec {
  ExchangeShape exchange;
  int32_t columns = 0;
  DType input = DType::kBF16;     // or kF8E4M3, with compact scales
  DType output = DType::kF8E4M3;  // kBF16 only of a bf16 input
  float epsilon = 0.0f;           // if it quantizes: the smallest amax of a scale
  int32_t threads = 256;
  int32_t segments_in_flight = 2;
  bool operator==(const DispatchRowsSpec&) const = default;
};

// Waits for the rows of all ranks.
struct AwaitRowsSpec {
  ExchangeShape exchange;
  int32_t threads = 512;
  bool operator==(const AwaitRowsSpec&) const = default;
};

// Sends each token's row to the ranks of its experts, and the rows of all slots to their permuted
// rows, with pad rows: as kPermuted stores of a row chain do.
struct DispatchPermuteSpec {
  ExchangeShape exchange;
  int32_t columns = 0;
  DType input = DType::kBF16;     // or kF8E4M3, with compact scales
  DType output = DType::kF8E4M3;  // kBF16 only of a bf16 input
  float epsilon = 0.0f;           // if it quantizes: the smallest amax of a scale
  bool moves_probs = true;
  bool tells_tokens = false;  // whether it writes which slot each row is of
  bool keeps_rows = false;    // whether it writes the rows of all slots too
  int32_t threads = 256;
  int32_t segments_in_flight = 2;
  bool operator==(const DispatchPermuteSpec&) const = default;
};

// Adds the rows that experts made of each token, sends the sums of other ranks' tokens home, and
// adds those that come to the own ones. With `sends_rows` it sends each row as it is, and home adds
// all rows of a token in the order of one rank with all experts.
struct CombineRowsSpec {
  ExchangeShape exchange;
  bool sends_rows = false;
  int32_t columns = 0;
  bool has_dprobs = false;
  DType probs = DType::kF32;  // of dprobs; or kBF16
  int32_t threads = 256;
  bool operator==(const CombineRowsSpec&) const = default;
};

std::string to_string(const ExchangeChoicesSpec& spec);
std::string to_string(const DispatchRowsSpec& spec);
std::string to_string(const DispatchPermuteSpec& spec);
std::string to_string(const AwaitRowsSpec& spec);
std::string to_string(const CombineRowsSpec& spec);

}  // namespace moejit::compiler
