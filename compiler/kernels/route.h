// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

struct RouteSpec {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 0;
  bool has_colwise_offs = false;  // whether starts of groups of columns are written too
  int32_t warps = 0;              // of a CTA
  DType topk_ids = DType::kI32;   // or kI64
  bool ignores_foreign = false;   // whether ids at or above local_experts are like -1
  bool operator==(const RouteSpec&) const = default;
};

std::string to_string(const RouteSpec& spec);

// Tells what RouteSpec tells of ids, of rows that lie in the order of experts already.
struct SplitRowsSpec {
  int32_t local_experts = 0;
  int32_t splits_alignment = 0;
  bool has_row_map = false;               // whether destinations are written too
  bool has_colwise_offs = false;          // whether starts of groups of columns are
  int32_t warps = 0;                      // of a CTA
  DType tokens_per_expert = DType::kI32;  // or kI64
  bool operator==(const SplitRowsSpec&) const = default;
};

std::string to_string(const SplitRowsSpec& spec);

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
