// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// What the two ways share that make the graph of a rank from the graph of its experts.

// Give a tensor another name in the ports, if it is there.
void rename(std::vector<Port>& ports, std::string_view from, const std::string& to);
void rename(Operation& operation, std::string_view from, const std::string& to);

// Returns the value of that name, or null.
Value* find_value(Graph& graph, std::string_view name);

// Makes the experts' tokens the slots of all ranks: these are "slot_ids", "slot_probs" and
// "slot_dprobs". x, topk_ids, topk_probs, y, dy, dx and dprobs become tensors of this rank's T
// tokens. `status` is the group's name for its status word. Nobody writes saved_tokens any more.
void name_slots(Graph& graph, const Layer& layer, const std::string& status);

// Makes the graph of a rank whose bytes a transport moves between kernels that know of no peer.
// Errors: none.
void exchange_by_collectives(Graph& graph, const Layer& layer, const std::string& status,
                             std::vector<std::string>& reasons);

}  // namespace moejit::compiler
