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
  std::optional<TensorRole> role = {};  // set only for values that callers own
  bool is_optional = false;
  bool is_optional_in_backward = false;
  int32_t rank = -1;         // of values in the memory of a group: in whose; -1 for the others
  float first_value = 0.0f;  // of states
};

// The operations of a plan in the order in which they run, and the values that they may touch. A
// value that no operation touches is not a tensor of the plan.
struct Graph {
  std::vector<Value> values;
  std::vector<Operation> operations;
  bool gathers_tokens = false;  // whether wgrad's operands are made from rows of tokens
};

// Returns the first operation of a phase that defines the tensor's values, or null.
const Operation* find_writer(const Graph& graph, std::string_view tensor, Phase phase);

// Returns whether backward reads the tensor as forward left it.
bool is_saved(const Graph& graph, std::string_view tensor);

// Removes the operations that these outputs do not need, and optional writes that nobody reads;
// with `keeps_intermediates` writes of intermediates stay. An operation that lost a write may
// become a simpler one (narrow()).
void prune(Graph& graph, const std::vector<std::string>& outputs, bool keeps_intermediates);

// Gives each backward operation its half and moves the data half to the front. The data half has
// everything that dx and dprobs need, and all recomputation.
void part_backward(Graph& graph);

// Gives each backward operation the part of fc2 or of fc1. The last one has only what makes dw1 and
// db1, so all that the first one reads may be freed before dw1 takes memory.
void part_linears(Graph& graph);

// Gives each operation its call: operations that quantize rows of tokens run on the tokens' rank,
// the others on the experts' rank.
void part_dispatch(Graph& graph);

// Renames tensors that the data half recomputes and leaves to the weights half to
// "recomputed_<name>". The forward pass's tensor of the plain name is in the workspace.
void name_recomputed(Graph& graph);

// Makes each backward operation check the T of its call.
void add_token_checks(Graph& graph);

// Makes each GEMM measure how long it runs (PlanOptions::measure_gemms).
void add_elapsed(Graph& graph);

// Returns the operations of the plan's kernels, by index into Plan::kernels: all but collectives.
std::vector<const Operation*> kernel_operations(const Graph& graph);

// Checks that operations read only tensors that an earlier operation writes or a caller gives, and
// touch only values of the graph. Error kInternal.
Result<void> validate(const Graph& graph);

// Returns the tensors that the operations touch, in the order of their values. A tensor that no
// caller owns is saved if backward reads what forward wrote. It is deferred if the weights half
// reads what the data half wrote, else workspace.
std::vector<TensorPlan> make_tensors(const Graph& graph);

}  // namespace moejit::compiler
