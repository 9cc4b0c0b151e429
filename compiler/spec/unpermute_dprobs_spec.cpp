// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/unpermute_dprobs_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const UnpermuteDprobsSpec& s) {
  return fmt::format("unpermute_dprobs top_k={} dprobs_columns={}{} threads={}{}", s.top_k,
                     s.dprobs_columns, s.adds_bias_dprobs ? " bias_dprobs" : "", s.threads,
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}

}  // namespace moejit::compiler
