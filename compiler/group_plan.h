// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/plan.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A tensor at a place in a block of memory.
struct PlacedTensor {
  std::string name;
  int64_t bytes = 0;
  int64_t offset = 0;  // multiple of 256
  bool operator==(const PlacedTensor&) const = default;
};

// The memory that each rank gives to its group; all ranks reach it. A plan's tensor "slots_2" is
// "slots" here, in the memory of rank 2. Only the rank itself touches its `epoch`.
struct GroupMemory {
  std::vector<PlacedTensor> tensors;
  int64_t bytes = 0;
  bool operator==(const GroupMemory&) const = default;
};
// A plan's tensor in the memory of a group.
struct TensorInGroup {
  const PlacedTensor* place = nullptr;  // null: the tensor is not there
  int64_t rank = 0;                     // in whose memory
};
// Finds a tensor of the plan of rank `own`: "slots_2" is "slots" of rank 2, "epoch" is its own.
TensorInGroup find_in_group(const GroupMemory& memory, std::string_view tensor, int64_t own);
// Returns whether all tensors of `part` are in `whole`, at the same places. A layer without a
// backward pass has fewer tensors there than with one.
bool contains(const GroupMemory& whole, const GroupMemory& part);

// What one rank of a group runs for a layer. First, choices and rows go to the ranks of their
// experts. Then the experts of this rank run; their tokens are the S = R * max_tokens slots of all
// ranks. Then the sums of a token's rows come home. Dispatch and combine are kernels among the
// others.
struct GroupPlan : LayerPlan {
  int64_t rank = 0;
  GroupMemory memory;
};

// Plans one rank's part of a layer with expert_parallel; the options name the rank. The function is
// pure. Plans of all ranks are equal but for the numbers of ranks. Errors: all of plan_layer();
// kUnsupported for a layer without expert_parallel.
Result<GroupPlan> plan_group_layer(const Layer& layer, const Target& target,
                                   const PlanOptions& options = {});

// Checks that the layer is of one rank. Error kUnsupported: it is a layer of a group.
Result<void> check_is_of_one_rank(const Layer& layer);

// Returns the layer of a rank's experts, whose tokens are all slots. Ids are i32 and probabilities
// f32, whatever the description says. An expert's id is its place among the rank's own experts.
Layer layer_of_experts(const Layer& layer);

// Returns the layer that one rank would run with all tokens of the group and all experts: R *
// max_tokens tokens. A group's results are compared with the results of this layer.
Layer layer_of_one_rank(const Layer& layer);

// Returns what all ranks of a group have to agree on, as fields "name=value": version, ranks, the
// description without its name, and the plan's digest.
std::vector<std::string> group_identity(const GroupPlan& plan);

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

// Return the plan as text for people and as JSON, like print_plan() and plan_to_json() of a layer,
// with a section about the group.
std::string print_plan(const GroupPlan& plan, bool explain, int32_t width = 0);
std::string plan_to_json(const GroupPlan& plan);

}  // namespace moejit::compiler
