// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/router.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Chooses the experts of tokens by their logits (docs/router.md).
struct RouterSpec {
  RouterFormula formula;
  int32_t experts = 0;  // with zero experts
  int32_t top_k = 0;
  int32_t warps = 0;             // of a CTA, each with a token at a time
  DType topk_ids = DType::kI32;  // or kI64
  bool overlaps = false;         // see LaunchShape
  bool operator==(const RouterSpec&) const = default;
};

std::string to_string(const RouterSpec& spec);

// Makes the gradients of logits from gradients of probabilities.
struct RouterBackwardSpec {
  RouterFormula formula;
  int32_t experts = 0;  // with zero experts
  int32_t top_k = 0;
  int32_t warps = 0;             // of a CTA, each with a token at a time
  DType topk_ids = DType::kI32;  // or kI64
  bool operator==(const RouterBackwardSpec&) const = default;
};

std::string to_string(const RouterBackwardSpec& spec);

// Returns how many neighboring experts a lane of a warp holds.
int32_t router_experts_per_lane(const RouterFormula& formula, int32_t experts);

// Returns whether the backward kernel reads all logits, and not only the chosen ones.
bool reads_all_logits(const RouterFormula& formula);

// Returns how many warps a CTA of either kernel has in calls of up to so many tokens.
int32_t usual_router_warps(const RouterFormula& formula, int32_t experts, int64_t max_tokens);

// Returns the text of the type Formula in an emitted kernel, see
// moejit_device/map/router_formula.cuh. In a backward kernel it has the score's derivative too.
std::string router_formula_text(const RouterFormula& formula, int32_t top_k, bool is_backward);

}  // namespace moejit::compiler
