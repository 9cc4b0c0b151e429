// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Gradients of probabilities from rows to the choices of tokens, where no rows of dx go with them.
struct UnpermuteDprobsSpec {
  int32_t top_k = 0;
  int32_t dprobs_columns = 0;     // blocks of a row's gradient
  bool adds_bias_dprobs = false;  // and what the biases add to them
  int32_t threads = 128;
  DType probs = DType::kF32;  // of dprobs; or kBF16
  bool operator==(const UnpermuteDprobsSpec&) const = default;
};

std::string to_string(const UnpermuteDprobsSpec& spec);

}  // namespace moejit::compiler
