// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Appends the shared experts to the choices of tokens, behind the experts of the tokens' rank.
struct SharedChoicesSpec {
  int32_t ranks = 1;
  int32_t rank_experts = 0;  // of each rank, without shared ones
  int32_t top_k = 0;
  int32_t shared = 0;     // shared experts
  bool has_gate = false;  // whether the caller gives their probabilities
  int32_t threads = 256;
  DType topk_ids = DType::kI32;  // or kI64
  DType probs = DType::kF32;     // of topk_probs and shared_probs; or kBF16
  bool operator==(const SharedChoicesSpec&) const = default;
};

// Parts the gradients of these choices' probabilities.
struct SharedDprobsSpec {
  int32_t top_k = 0;
  int32_t shared = 0;
  bool has_gate = false;
  int32_t threads = 256;
  DType probs = DType::kF32;  // of dprobs and dshared_probs; or kBF16
  bool operator==(const SharedDprobsSpec&) const = default;
};

std::string to_string(const SharedChoicesSpec& spec);
std::string to_string(const SharedDprobsSpec& spec);

}  // namespace moejit::compiler
