// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Each fusion joins operations where that saves traffic and nothing else needs the tensor between
// them, and adds a sentence to `reasons` whether it does so or not. They are made in this order.

// Joins quantize and permute_pad, of x and of dy.
void fuse_quantize(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Lets wgrad's operands be made of the tokens' rows, gathered, and not of permuted ones, which are
// then made again where the backward pass needs them.
void fuse_transpose(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins the activation's gradient and the transposes of what it and the activation make.
void fuse_activation_transpose(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins gemm_fc1 and the activation.
void fuse_activation(Graph& graph, const Layer& layer, const PlanOptions& options,
                     std::vector<std::string>& reasons);

}  // namespace moejit::compiler
