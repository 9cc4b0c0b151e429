// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/graph.h"

#include <algorithm>
#include <fmt/core.h>
#include <set>

namespace moejit::compiler {
namespace {

using Names = std::set<std::string, std::less<>>;

template <typename Visit>
void for_each_tensor(const std::vector<Port>& ports, const Visit& visit) {
  for (const Port& port : ports) {
    visit(port, port.tensor);
    if (!port.scale_inv.empty()) visit(port, port.scale_inv);
  }
}

// Names of the tensors that operations touch, and of those they leave for later calls.
struct Kept {
  Names touched, saved, deferred;
  Names of_forward;  // everything that the forward pass writes
};

Kept find_kept(const Graph& graph) {
  Kept kept;
  Names of_backward, of_second_part;
  for (const Operation& operation : graph.operations) {
    const bool is_backward = operation.phase == Phase::kBackward;
    const bool is_second_part = is_second(operation.half);
    for_each_tensor(operation.reads, [&](const Port&, const std::string& name) {
      kept.touched.insert(name);
      if (!is_backward) return;
      if (!of_backward.contains(name) && kept.of_forward.contains(name)) kept.saved.insert(name);
      if (is_second_part && of_backward.contains(name) && !of_second_part.contains(name))
        kept.deferred.insert(name);
    });
    for_each_tensor(operation.writes, [&](const Port& port, const std::string& name) {
      kept.touched.insert(name);
      if (port.is_repeated) return;
      (is_backward ? of_backward : kept.of_forward).insert(name);
      if (is_second_part) of_second_part.insert(name);
    });
  }
  return kept;
}

TensorRole role_of(const Value& value, const Kept& kept) {
  if (value.role) return *value.role;
  if (kept.saved.contains(value.name)) return TensorRole::kSaved;
  return kept.deferred.contains(value.name) ? TensorRole::kDeferred : TensorRole::kWorkspace;
}

// Returns the name of a tensor's scales; empty if it has none.
std::string scales_of(const Graph& graph, std::string_view tensor) {
  for (const Operation& operation : graph.operations)
    for (const auto* const ports : {&operation.reads, &operation.writes})
      for (const Port& port : *ports)
        if (port.tensor == tensor && !port.scale_inv.empty()) return port.scale_inv;
  return {};
}

void rename_in_backward(Graph& graph, const std::string& from, const std::string& to) {
  for (Operation& operation : graph.operations) {
    if (operation.phase != Phase::kBackward) continue;
    for (std::vector<Port>* const ports : {&operation.reads, &operation.writes})
      for (Port& port : *ports)
        for (std::string* const tensor : {&port.tensor, &port.scale_inv})
          if (*tensor == from) *tensor = to;
  }
}

}  // namespace

void name_recomputed(Graph& graph) {
  const Kept kept = find_kept(graph);
  const std::size_t count = graph.values.size();
  for (std::size_t i = 0; i < count; ++i) {
    Value again = graph.values[i];
    if (role_of(again, kept) != TensorRole::kDeferred || !kept.of_forward.contains(again.name))
      continue;
    again.name = fmt::format("recomputed_{}", again.name);
    rename_in_backward(graph, graph.values[i].name, again.name);
    graph.values.push_back(std::move(again));
  }
}

void part_dispatch(Graph& graph) {
  for (Operation& operation : graph.operations) {
    if (operation.phase == Phase::kWeights || is_of_scales(operation.phase)) continue;
    operation.dispatch_call = kind_of<QuantizeRows>(operation) != nullptr ? DispatchCall::kQuantize
                                                                          : DispatchCall::kExperts;
  }
}

void add_token_checks(Graph& graph) {
  const Kept kept = find_kept(graph);
  // Where forward saves nothing for the part of fc1, its caller may have freed the saved block.
  const bool frees_saved = std::ranges::none_of(graph.operations, [&](const Operation& operation) {
    return operation.half == BackwardHalf::kFc1 &&
           std::ranges::any_of(kept.saved,
                               [&](const std::string& tensor) { return reads(operation, tensor); });
  });
  for (Operation& operation : graph.operations) {
    if (operation.phase != Phase::kBackward) continue;
    if (frees_saved && operation.half == BackwardHalf::kFc1) continue;
    // A rank's own tokens and the rows that it receives differ in T.
    if (operation.dispatch_call == DispatchCall::kQuantize) continue;
    if (kind_of<QuantizeWeights>(operation) != nullptr) continue;  // has no tokens
    operation.reads.push_back({.role = "saved_tokens", .tensor = "saved_tokens"});
    operation.writes.push_back({.role = "tokens_status", .tensor = "status", .is_repeated = true});
  }
}

void add_elapsed(Graph& graph) {
  for (Operation& operation : graph.operations) {
    if (!is_gemm(operation)) continue;
    // A GEMM of the forward pass that backward recomputes multiplies the same operands.
    const bool is_again = operation.phase == Phase::kBackward &&
                          std::ranges::any_of(graph.operations, [&](const Operation& other) {
                            return other.phase == Phase::kForward && is_gemm(other) &&
                                   read_of(other, "a").tensor == read_of(operation, "a").tensor &&
                                   read_of(other, "b").tensor == read_of(operation, "b").tensor;
                          });
    const std::string name =
        fmt::format("{}{}_elapsed", is_again ? "recomputed_" : "", operation.name);
    operation.writes.push_back({.role = "elapsed", .tensor = name});
    graph.values.push_back(
        {.name = name, .dtype = DType::kI64, .shape = {Dim{"2", 2}}, .role = TensorRole::kOutput});
  }
}

std::vector<TensorPlan> make_tensors(const Graph& graph) {
  const Kept kept = find_kept(graph);
  std::vector<TensorPlan> tensors;
  for (const Value& value : graph.values) {
    if (!kept.touched.contains(value.name)) continue;
    int64_t bytes = size_bytes(value.dtype);
    for (const Dim& dim : value.shape) bytes *= dim.value;
    tensors.push_back({.name = value.name,
                       .dtype = value.dtype,
                       .shape = value.shape,
                       .layout = value.layout,
                       .role = role_of(value, kept),
                       .scale_inv = scales_of(graph, value.name),
                       .is_optional = value.is_optional,
                       .is_optional_in_backward = value.is_optional_in_backward,
                       .bytes = bytes,
                       .rank = value.rank,
                       .first_value = value.first_value});
  }
  return tensors;
}

}  // namespace moejit::compiler
