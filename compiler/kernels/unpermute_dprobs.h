// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Moves gradients of probabilities from rows to the choices of tokens, if no rows of dx are moved.
struct UnpermuteDprobsSpec {
  int32_t top_k = 0;
  int32_t dprobs_columns = 0;     // blocks of a row's gradient
  bool adds_bias_dprobs = false;  // whether the biases' part is added
  int32_t threads = 128;
  DType probs = DType::kF32;  // of dprobs; kF32 or kBF16
  bool operator==(const UnpermuteDprobsSpec&) const = default;
};

std::string to_string(const UnpermuteDprobsSpec& spec);

}  // namespace moejit::compiler
