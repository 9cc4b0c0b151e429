// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Operations = std::vector<Operation>;

// Returns whether an operation only moves rows of tokens, or quantizes each on its own. Scales of
// experts are found, or applied, by kernels that read what route writes.
bool keeps_no_expert_scale(const Operation& operation) {
  const auto* const permute = kind_of<PermutePad>(operation);
  return permute != nullptr && !permute->finds_amax &&
         !(permute->quantize && has_expert_scale(permute->quantize->format));
}

bool routes_ids(const Operation& operation) {
  return kind_of<Route>(operation) != nullptr && find_read(operation, "topk_ids") != nullptr;
}

// Returns whether an operation reads or writes something that route writes.
bool touches_routes(const Operation& operation, const Operation& route) {
  return std::ranges::any_of(route.writes, [&](const Port& port) {
    return reads(operation, port.tensor) || defines(operation, port.tensor);
  });
}

// Returns the operation that permutes rows and is the first that needs the routes.
Operations::iterator find_rows(Operations::iterator route, Operations::iterator end,
                               const Target& target) {
  const auto first = std::find_if(route + 1, end, [&](const Operation& operation) {
    return touches_routes(operation, *route);
  });
  const bool fits = first != end && keeps_no_expert_scale(*first) && first->phase == route->phase &&
                    first->dispatch_call == route->dispatch_call &&
                    can_route_permute(*route, *first, target);
  return fits ? first : end;
}

}  // namespace

void fuse_route(Graph& graph, const Layer& layer, const Target& target,
                std::vector<std::string>& reasons) {
  const int64_t choices = layer.max_tokens * layer.top_k;
  if (has_backward(layer) || choices > kMostChoicesToRoute) return;
  Operations& operations = graph.operations;
  const auto route = std::ranges::find_if(operations, routes_ids);
  if (route == operations.end()) return;
  const auto permute = find_rows(route, operations.end(), target);
  if (permute == operations.end()) return;
  reasons.push_back(fmt::format(
      "route and {} are one kernel: with {} choices in a largest call, each CTA that moves rows "
      "routes all of them in less time than a launch takes",
      permute->name, choices));
  *permute = with_route(*permute, *route);
  operations.erase(route);
}

}  // namespace moejit::compiler
