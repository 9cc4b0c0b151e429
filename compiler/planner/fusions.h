// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"
#include "compiler/target.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Each fusion joins operations if that saves traffic and no other operation needs the tensor
// between them. It adds a sentence to `reasons` in either case. The planner calls them in this
// order.

// Joins quantize and permute_pad, for x and for dy.
void fuse_quantize(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Makes the operands of wgrad from gathered rows of tokens instead of permuted rows. If the
// backward pass needs the permuted rows otherwise, it permutes them again.
void fuse_transpose(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins the cast of permuted rows with the transpose of its codes, if the scales are known or an
// operation before the cast finds them. fuse_transpose() calls it for such rows.
void fuse_permuted_cast(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins the activation's gradient with the transposes of its result and of the activation.
void fuse_activation_transpose(Graph& graph, const Layer& layer, const Target& target,
                               std::vector<std::string>& reasons);

// Joins them with two kernels where scales belong to whole rows and columns; the first one finds
// largest magnitudes. fuse_activation_transpose() calls it for such operands.
void fuse_activation_columns(Graph& graph, const Layer& layer, const Target& target,
                             std::vector<std::string>& reasons);

// Joins the activation's gradient with the cast of its rows in groups of 32, if nobody wants them
// by columns. Must be called after prune(), which leaves out what nobody wants.
void fuse_cast_rows(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins gemm_fc1 and the activation.
void fuse_activation(Graph& graph, const Layer& layer, const Target& target,
                     const PlanOptions& options, std::vector<std::string>& reasons);

// Joins route and the operation that permutes x in forward-only layers of few tokens. Must be
// called after prune() and all fusions that look at either.
void fuse_route(Graph& graph, const Layer& layer, const Target& target,
                std::vector<std::string>& reasons);

// Makes the graph of a rank of a group from the graph of its experts, for which the slots of all
// ranks are tokens. Rows come from the ranks of their tokens, and sums go home. Dispatch is joined
// with permute, and combine with unpermute. The status word is the group's.
void exchange_tokens(Graph& graph, const Layer& layer, int64_t rank,
                     std::vector<std::string>& reasons);

// Makes the graph of a layer with shared experts from the graph in which tokens choose them
// (with_shared_chosen()). The caller's ids and probabilities get the others appended, and gradients
// are parted again. Must be called behind everything that looks for the callers' tensors.
void join_shared(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Makes the graph of grouped input from the graph of tokens with one choice each.
void take_grouped_rows(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Makes the graph of a layer with a router from the graph of without_router(). The router is the
// first operation of forward. Its gradient is the last operation of backward, or of its data half.
// `status` is the name of the status word. Must be called after all others: no fusion knows of
// routers.
void route_by_logits(Graph& graph, const Layer& layer, const std::string& status);

// Makes the operations that permute x write the token of each row.
void tell_tokens(Graph& graph);

// Returns whether a kernel with tiles of 128 rows of an expert covers all of the expert's pad rows,
// too.
bool has_pads_at_the_end_of_tiles(const Layer& layer);

}  // namespace moejit::compiler
