// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns what the passes of a layer do: weights, forward, backward, each as if nothing could be
// fused, and with every gradient that the layer has. Formats of the recipe say which casts there
// are.
Graph layer_graph(const Layer& layer);

// Returns the tensors for which all that is done: y and the gradients that the layer computes.
std::vector<std::string> layer_outputs(const Layer& layer);

}  // namespace moejit::compiler
