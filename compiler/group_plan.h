// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/plan.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Check that the layer is of one rank, or of a group of ranks. Error kUnsupported: it is not.
Result<void> check_is_of_one_rank(const Layer& layer);
Result<void> check_is_of_group(const Layer& layer);

// Returns the layer of a rank's experts, whose tokens are all slots. Ids are i32 and probabilities
// f32, whatever the description says. An expert's id is its place among the rank's own experts.
// Shared experts are such experts, too.
Layer layer_of_experts(const Layer& described);

// Returns the layer that one rank would run with all tokens of the group and all experts: R *
// max_tokens tokens. A group's results are compared with the results of this layer.
Layer layer_of_one_rank(const Layer& layer);

// Returns what all ranks of a group have to agree on, as fields "name=value": version, ranks, the
// description without its name, and the plan's digest.
std::vector<std::string> group_identity(const Plan& plan);

// What a call moves between ranks.
struct GroupTraffic {
  int64_t row_bytes = 0;      // of a dispatched row, with its scales
  int64_t result_bytes = 0;   // of a row that goes home
  int64_t choice_bytes = 0;   // of a token's ids and probabilities, to each other rank
  double remote_ranks = 0.0;  // that a token's row goes to in the mean, if its K experts are drawn
                              // uniformly and differ
  double results = 0.0;       // rows that come home from other ranks for a token, in the mean
  double dispatch_bytes = 0.0;     // that a rank sends for a token in a forward call, in the mean
  double combine_bytes = 0.0;      // that come back for a token, in the mean
  double dispatch_floor_us = 0.0;  // least time for max_tokens tokens, at the rate of a link
  double combine_floor_us = 0.0;
};
GroupTraffic group_traffic(const Layer& layer);

}  // namespace moejit::compiler
