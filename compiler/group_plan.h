// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/exchange.h"
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

// The memory that each rank of a group gives, and that all ranks reach. The tensor "slots_2" of a
// step is "slots" here, in the memory of rank 2. `epoch` is touched by its own rank alone.
struct GroupMemory {
  std::vector<PlacedTensor> tensors;
  int64_t bytes = 0;
  bool operator==(const GroupMemory&) const = default;
};

// A step of an exchange, as the forward or the backward call of a layer runs it.
struct GroupStep {
  ExchangeStep step = ExchangeStep::kChoices;
  Phase phase = Phase::kForward;
  Plan plan;
};

// What one rank of a group runs for a layer: the steps of an exchange, and between them the experts
// of this rank, for which the S = R * max_tokens slots are the tokens.
struct GroupPlan {
  Layer layer;  // as described
  int64_t rank = 0;
  Target target;
  LayerPlan experts;             // of this rank
  std::vector<GroupStep> steps;  // in the order of a forward call, then of a backward call
  GroupMemory memory;
  // The tensors of callers, with their roles: those of tokens [T, ...] and of this rank's experts.
  std::vector<TensorPlan> tensors;
  // What steps and experts hand to each other, behind the experts' own part of the block:
  // slot_ids, slot_probs [S, K], slot_results [S, H], slot_dprobs [S, K], and for backward the rows
  // that came, received_x and received_x_scale_inv.
  std::vector<PlacedTensor> in_workspace, in_saved;
  int64_t workspace_bytes = 0;
  int64_t saved_bytes = 0;  // 0 without backward
};

// What the caller decides about a rank of a group.
struct GroupPlanOptions {
  int64_t rank = 0;
  int64_t timeout_ms = 10000;  // of each wait for a peer
  PlanOptions experts = {};
};

// Plans one rank's part of a layer with expert_parallel. Is pure, and equal on all ranks but for
// the numbers of ranks. Errors: those of plan_layer() and plan_exchange(); kUnsupported for a layer
// without expert_parallel, and for scale_sharing_k 2 with the dispatch fp8.
Result<GroupPlan> plan_group_layer(const Layer& layer, const Target& target,
                                   const GroupPlanOptions& options = {});

// Returns the layer that one rank would run with all tokens of the group and all experts: R *
// max_tokens tokens. Its results are what a group's are compared with.
Layer layer_of_one_rank(const Layer& layer);

// Returns the part of a pass that the experts of a rank do: all of it, or what follows dispatch.
CallPart experts_part(const GroupPlan& plan, Phase phase);

// Returns the name in the group's plan of what a tensor of the experts is in a call of this phase:
// "slots_0" for x_q, "slot_results" for y. Other tensors keep their names.
std::string name_in_group(const GroupPlan& plan, Phase phase, std::string_view name);

// Returns what all ranks of a group have to agree on, as fields "name=value": version, ranks, the
// description without its name, and the digest of the experts' plan.
std::vector<std::string> group_identity(const GroupPlan& plan);

// What a call moves between ranks.
struct GroupTraffic {
  int64_t row_bytes = 0;      // of a dispatched row, with its scales
  int64_t result_bytes = 0;   // of a row that goes home
  int64_t choice_bytes = 0;   // of a token's ids and probabilities, to each other rank
  double remote_ranks = 0.0;  // that a token's row goes to in the mean, if its K experts are drawn
                              // uniformly and differ
  double dispatch_bytes = 0.0;     // that a rank sends for a token in a forward call, in the mean
  double combine_bytes = 0.0;      // that come back for it
  double dispatch_floor_us = 0.0;  // of max_tokens tokens, at the rate of a link
  double combine_floor_us = 0.0;
};
GroupTraffic group_traffic(const Layer& layer);

// Returns the plan as text for people or as JSON, as print_plan() and plan_to_json() of a layer: a
// section about the group and the steps of its exchange, then the plan of the experts.
std::string print_plan(const GroupPlan& plan, bool explain, int32_t width = 0);
std::string plan_to_json(const GroupPlan& plan);

}  // namespace moejit::compiler
