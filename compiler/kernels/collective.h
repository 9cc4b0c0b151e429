// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/exchange.h"

#include <string>

namespace moejit::compiler {

// The kernels on both sides of a transport that moves bytes between ranks:
// templates/moejit_device/exchange/gathered_choices.cuh and combine_arrived.cuh.

// Writes a rank's choices as all ranks get them.
struct PackChoicesSpec {
  ExchangeShape exchange;
  DType probs = DType::kF32;  // or kBF16
  int32_t threads = 256;
  bool operator==(const PackChoicesSpec&) const = default;
};

// Makes the choices of this rank's experts from the packed choices of all ranks.
struct TakeChoicesSpec {
  ExchangeShape exchange;  // except for topk_ids and chunk_tokens, which play no part
  int32_t threads = 256;
  bool operator==(const TakeChoicesSpec&) const = default;
};

// Reports a backward call that has another T than its forward call; one CTA.
struct CompareTokensSpec {
  int32_t threads = 32;
  bool operator==(const CompareTokensSpec&) const = default;
};

// Adds what the experts of all ranks made of each token: sums, one of each rank, or with
// `adds_rows` the row of each choice.
struct CombineArrivedSpec {
  ExchangeShape exchange;
  bool adds_rows = false;
  int32_t columns = 0;
  bool has_dprobs = false;
  DType probs = DType::kF32;  // of dprobs; or kBF16
  int32_t threads = 256;
  bool operator==(const CombineArrivedSpec&) const = default;
};

std::string to_string(const PackChoicesSpec& spec);
std::string to_string(const TakeChoicesSpec& spec);
std::string to_string(const CompareTokensSpec& spec);
std::string to_string(const CombineArrivedSpec& spec);

}  // namespace moejit::compiler
