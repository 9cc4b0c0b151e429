// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/router.h"

#include <cstdint>
#include <span>
#include <vector>

// The parts of a router's choice of one token, for the files that need them.
namespace moejit::reference {

// Returns z: logits that are scaled and capped.
std::vector<float> transformed_logits(const Router& router, std::span<const float> logits);

// Returns whether weights are a softmax over the chosen, so that dividing by their sum is left out.
bool is_sum_one(const Router& router);

// Returns how many neighbors share a partial sum of experts: a lane of a warp has them.
std::int64_t neighbors_of(const Router& router);

// Return the score of one expert, and the scores of all experts of a token.
float elementwise_score(const Router& router, float z);
std::vector<float> expert_scores(const Router& router, std::span<const float> z);

// Returns the indices of the `count` largest values, the largest first. If values are equal, the
// lower index is first; NaN is larger than every number.
std::vector<std::int64_t> indices_of_largest(std::span<const float> values, std::int64_t count);

// Returns the score of each group of experts, from what orders the experts.
std::vector<float> scores_of_groups(const Router& router, std::span<const float> order);

// Returns what orders the choice, with the bias.
std::vector<float> choice_order(const Router& router, std::span<const float> z,
                                std::span<const float> bias);

// Returns the order in which experts of groups that are not kept are filled.
std::vector<float> kept_order(const Router& router, std::vector<float> order);

}  // namespace moejit::reference
