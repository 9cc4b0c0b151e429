// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns the operations of a layer's weights, forward and backward phases, without any fusion and
// with every gradient that the layer has. The formats of the recipe decide which casts there are.
Graph layer_graph(const Layer& layer);

// Returns the tensors that a plan computes for callers: y and the gradients that the layer
// computes.
std::vector<std::string> layer_outputs(const Layer& layer);

}  // namespace moejit::compiler
