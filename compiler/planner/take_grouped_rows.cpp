// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <map>
#include <string>

// Rows that come in the order of experts take the places that permute would give them. So where no
// group needs pad rows, operations that move rows between the two orders are left out. Their
// neighbors read and write the callers' tensors.

namespace moejit::compiler {
namespace {

constexpr std::string_view kProbs = "probs";

void replace_route(Operation& operation, const Layer& layer) {
  const Route route = std::get<Route>(operation.kind);
  operation.name = "split_rows";
  operation.kind = SplitRows{.local_experts = route.local_experts,
                             .splits_alignment = route.splits_alignment,
                             .tokens_per_expert = dtype_of(layer.tokens_per_expert_dtype)};
  operation.reads = {{.role = "tokens_per_expert", .tensor = "tokens_per_expert"}};
  for (Port& port : operation.writes) port.is_optional |= port.role == "row_map";
}

// Tensors of one name that are another one's under a new name.
using Names = std::map<std::string, std::string, std::less<>>;

void rename(std::vector<Port>& ports, const Names& names) {
  for (Port& port : ports)
    for (std::string* const tensor : {&port.tensor, &port.scale_inv})
      if (const auto found = names.find(*tensor); found != names.end()) *tensor = found->second;
}

// Returns whether the operation moves rows as they are: it casts none, and finds no magnitudes.
bool moves_rows(const Operation& operation) {
  const auto* const permute = kind_of<PermutePad>(operation);
  return permute != nullptr && !permute->quantize && !permute->finds_amax;
}

// Adds what the tensors of such an operation are in place.
void add_names(const Operation& permute, Names& names) {
  const Port &from = read_of(permute, "input"), &to = write_of(permute, "output");
  names.emplace(to.tensor, from.tensor);
  if (!to.scale_inv.empty()) names.emplace(to.scale_inv, from.scale_inv);
  if (const Port* const probs = find_write(permute, "output_probs"))
    names.emplace(probs->tensor, kProbs);
}

// Makes the GEMM whose rows an operation moved back write them for the caller. Gradients of
// probabilities are still added up.
void end_with_gemm(Operation& unpermute, Graph& graph, Names& names) {
  const std::string rows = read_of(unpermute, "input").tensor;
  for (Operation& operation : graph.operations)
    if (auto* const gemm = std::get_if<GroupedGemm>(&operation.kind);
        gemm != nullptr && write_of(operation, "d").tensor == rows)
      gemm->problem.zeros_rest = true;
  names.emplace(rows, write_of(unpermute, "output").tensor);
  std::get<Unpermute>(unpermute.kind).keeps_rows = true;
  std::erase_if(unpermute.writes, [](const Port& port) { return port.role == "output"; });
}

}  // namespace

void take_grouped_rows(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  Names names = {{"topk_probs", std::string(kProbs)}};
  for (Operation& operation : graph.operations) {
    if (kind_of<Route>(operation) != nullptr) replace_route(operation, layer);
    if (!keeps_rows(layer)) continue;
    if (moves_rows(operation)) add_names(operation, names);
    if (kind_of<Unpermute>(operation) != nullptr) end_with_gemm(operation, graph, names);
  }
  std::erase_if(graph.operations, [&](const Operation& operation) {
    return (keeps_rows(layer) && moves_rows(operation)) || operation.writes.empty();
  });
  for (Operation& operation : graph.operations) {
    rename(operation.reads, names);
    rename(operation.writes, names);
  }
  reasons.emplace_back(
      keeps_rows(layer) ? "rows stay at their places from x to y: no group needs pad rows"
                        : "rows move to groups that start at multiples of the alignment, and back");
}

}  // namespace moejit::compiler
