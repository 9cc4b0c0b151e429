// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operation.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A tensor that operations may read and write, with its sizes at their bounds.
struct Value {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<Dim> shape;
  Layout layout = Layout::kRowMajor;
  std::optional<TensorRole> role = {};  // of a caller's; what operations leave each other has none
  bool is_optional = false;
  bool is_optional_in_backward = false;
};

// What a plan does: operations in the order in which they run, and the values that they may touch.
// Values that none touches are no tensors of the plan.
struct Graph {
  std::vector<Value> values;
  std::vector<Operation> operations;
  bool gathers_tokens = false;  // wgrad's operands are made of tokens, not of permuted rows
};

// Returns the first operation of a phase that gives the tensor its values, or null.
const Operation* find_writer(const Graph& graph, std::string_view tensor, Phase phase);

// Returns whether backward reads the tensor as forward left it.
bool is_saved(const Graph& graph, std::string_view tensor);

// Leaves out operations that nobody needs for these outputs, and optional writes that nobody reads,
// but for intermediates where these are kept; what is left of an operation may be a lesser one.
void prune(Graph& graph, const std::vector<std::string>& outputs, bool keeps_intermediates);

// Gives each backward operation its half and puts the data half first: it has what dx and dprobs
// need, and what is computed again.
void part_backward(Graph& graph);

// Gives each operation its call: what quantizes rows of tokens runs where the tokens are, the rest
// where the experts are.
void part_dispatch(Graph& graph);

// Gives what the data half computes again and leaves the weights half a name of its own,
// "recomputed_<name>": that of the forward pass is in the workspace.
void name_recomputed(Graph& graph);

// Lets each backward operation check the T of its call.
void add_token_checks(Graph& graph);

// Lets each GEMM tell how long it ran (PlanOptions::measure_gemms).
void add_elapsed(Graph& graph);

// Refuses a graph in which an operation reads what no operation before it writes and no caller
// gives, or in which it touches what is no value (kInternal).
Result<void> validate(const Graph& graph);

// Returns the tensors that the operations touch, in the order of their values. A tensor that no
// caller owns is saved if backward reads what forward wrote, deferred if the weights half reads
// what the data half wrote, else workspace.
std::vector<TensorPlan> make_tensors(const Graph& graph);

}  // namespace moejit::compiler
