// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/group_graph.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <utility>

namespace moejit::compiler {
namespace {

// What the callers' tensors are called where they have the shared experts, too.
constexpr std::array kJoined = {std::pair("topk_ids", "all_ids"),
                                std::pair("topk_probs", "all_probs"),
                                std::pair("dprobs", "all_dprobs")};

// Gives the operations tensors of other names, with the shared experts, and leaves the caller's
// tensors without. The other ones come last, so that saved_tokens stays first of what is saved.
void name_joined(Graph& graph, const Layer& layer) {
  for (const auto& [given, joined] : kJoined) {
    Value* const value = find_value(graph, given);
    if (value == nullptr) continue;
    Value all = *value;
    all.name = joined;
    all.role.reset();
    all.shape.back().symbol = fmt::format("K+{}", layer.shared.experts);
    value->dtype = std::string_view(given) == "topk_ids" ? dtype_of(layer.topk_ids_dtype)
                                                         : dtype_of(layer.topk_probs_dtype);
    value->shape.back().value = layer.top_k;
    for (Operation& operation : graph.operations) rename(operation, given, joined);
    graph.values.push_back(std::move(all));
  }
}

// Adds the gate's values of the caller's tokens behind the values of the choices.
void add_gate(Graph& graph) {
  for (const auto& [choices, gate] :
       {std::pair("topk_probs", "shared_probs"), std::pair("dprobs", "dshared_probs")}) {
    const auto found = std::ranges::find(graph.values, choices, &Value::name);
    if (found == graph.values.end()) continue;
    Value value = *found;
    value.name = gate;
    value.shape.pop_back();
    graph.values.insert(found + 1, std::move(value));
  }
}

// Returns the place of the first operation that a predicate holds for.
template <typename Holds>
auto find_first(Graph& graph, const Holds& holds) {
  return std::ranges::find_if(graph.operations, holds);
}

// Returns an operation that belongs to the same calls as another one.
Operation beside(const Operation& other, std::string name, OperationKind kind) {
  return {.name = std::move(name),
          .kind = std::move(kind),
          .phase = other.phase,
          .half = other.half,
          .tokens = other.tokens};
}

void append_choices(Graph& graph, const Layer& layer) {
  const auto reader = find_first(graph, [](const Operation& one) { return reads(one, "all_ids"); });
  Operation join = beside(*reader, "shared_choices",
                          SharedChoices{{.ranks = std::max(layer.expert_parallel.ranks, 1),
                                         .rank_experts = layer.local_experts,
                                         .top_k = layer.top_k,
                                         .shared = layer.shared.experts,
                                         .has_gate = layer.shared.gate,
                                         .topk_ids = dtype_of(layer.topk_ids_dtype),
                                         .probs = dtype_of(layer.topk_probs_dtype)}});
  for (const std::string_view name : {"topk_ids", "topk_probs"})
    join.reads.push_back({.role = std::string(name), .tensor = std::string(name)});
  if (layer.shared.gate) join.reads.push_back({.role = "shared_probs", .tensor = "shared_probs"});
  for (const std::string_view name : {"all_ids", "all_probs"})
    join.writes.push_back({.role = std::string(name), .tensor = std::string(name)});
  graph.operations.insert(std::ranges::find(graph.operations, Phase::kForward, &Operation::phase),
                          std::move(join));
}

void part_gradients(Graph& graph, const Layer& layer) {
  const auto writer =
      find_first(graph, [](const Operation& one) { return defines(one, "all_dprobs"); });
  if (writer == graph.operations.end()) return;
  Operation part = beside(*writer, "shared_dprobs",
                          SharedDprobs{{.top_k = layer.top_k,
                                        .shared = layer.shared.experts,
                                        .has_gate = layer.shared.gate,
                                        .probs = dtype_of(layer.topk_probs_dtype)}});
  part.reads = {{.role = "all_dprobs", .tensor = "all_dprobs"}};
  part.writes = {{.role = "dprobs", .tensor = "dprobs"}};
  if (layer.shared.gate)
    part.writes.push_back({.role = "dshared_probs", .tensor = "dshared_probs"});
  graph.operations.insert(writer + 1, std::move(part));
}

}  // namespace

void join_shared(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  if (!has_shared(layer)) return;
  name_joined(graph, layer);
  if (layer.shared.gate) add_gate(graph);
  append_choices(graph, layer);
  part_gradients(graph, layer);
  reasons.push_back(
      fmt::format("each token has {} shared expert{} beside its K: {} rows are added up for it",
                  layer.shared.experts, layer.shared.experts == 1 ? "" : "s",
                  layer.top_k + layer.shared.experts));
}

}  // namespace moejit::compiler
