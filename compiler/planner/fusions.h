// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

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

// Joins casts of permuted rows whose scales an operation before finds or knows with the transposes
// of what they make. fuse_transpose() calls it for such rows.
void fuse_permuted_cast(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins the activation's gradient with the transposes of its result and of the activation.
void fuse_activation_transpose(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Does so where scales belong to whole rows and columns, with two kernels, of which the first one
// finds largest magnitudes. fuse_activation_transpose() calls it for such operands.
void fuse_activation_columns(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins the activation's gradient with the cast of its rows in groups of 32, if nobody wants them
// by columns. Comes behind prune(), which leaves out what nobody wants.
void fuse_cast_rows(Graph& graph, const Layer& layer, std::vector<std::string>& reasons);

// Joins gemm_fc1 and the activation.
void fuse_activation(Graph& graph, const Layer& layer, const PlanOptions& options,
                     std::vector<std::string>& reasons);

// Makes the graph of a rank's experts, for which the slots of all ranks are tokens, that of a rank
// of a group: rows come from the ranks of their tokens, and sums go home. Dispatch is joined with
// permute, and combine with unpermute. The status word is the group's.
void exchange_tokens(Graph& graph, const Layer& layer, int64_t rank,
                     std::vector<std::string>& reasons);

// Makes the operations that permute x write the token of each row.
void tell_tokens(Graph& graph);

// Returns whether a kernel that has tiles of 128 rows of an expert has all of its pad rows, too.
bool has_pads_at_the_end_of_tiles(const Layer& layer);

}  // namespace moejit::compiler
