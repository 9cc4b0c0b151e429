// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/exchange_operation.h"

#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

template <typename Spec>
const Spec* spec_of(const Operation& operation) {
  const auto* const kernel = kind_of<ExchangeKernel>(operation);
  return kernel == nullptr ? nullptr : std::get_if<Spec>(&kernel->spec);
}

// Adds the ports of one of the operations. A read of a tensor that another one writes is no read of
// the joined operation.
void add_ports(Operation& joined, const Operation& from, std::string_view name) {
  const auto add = [&](std::vector<Port>& ports, Port port) {
    port.role = fmt::format("{}.{}", name, port.role);
    ports.push_back(std::move(port));
  };
  for (Port port : from.reads) {
    port.is_repeated = defines(joined, port.tensor);
    add(port.is_repeated ? joined.writes : joined.reads, std::move(port));
  }
  for (const Port& port : from.writes) add(joined.writes, port);
}

}  // namespace

bool can_join_route_dispatch(const Operation& choices, const Operation& route,
                             const Operation& dispatch) {
  constexpr int32_t kMostBytes = 20 * 1024;  // of histograms: four CTAs of an SM have them and rows
  const auto* const dispatched = spec_of<DispatchPermuteSpec>(dispatch);
  if (spec_of<ExchangeChoicesSpec>(choices) == nullptr || kind_of<Route>(route) == nullptr ||
      dispatched == nullptr)
    return false;
  const int32_t histograms = 2 + dispatched->threads / 32;
  return 4 * histograms * dispatched->exchange.rank_experts <= kMostBytes;
}

ExchangeOperation join_route_dispatch(const Operation& choices, const Operation& route,
                                      const Operation& dispatch, int32_t rank) {
  const auto& exchanged = *spec_of<ExchangeChoicesSpec>(choices);
  const RouteDispatchPermuteSpec spec{.dispatch = *spec_of<DispatchPermuteSpec>(dispatch),
                                      .probs = exchanged.probs,
                                      .parts = exchanged.parts,
                                      .splits_alignment = kind_of<Route>(route)->splits_alignment};
  const int32_t pieces = pieces_of(exchanged.exchange, exchanged.parts);
  ExchangeKernel kernel{spec, kind_of<ExchangeKernel>(dispatch)->reasons};
  kernel.reasons.push_back(fmt::format(
      "{} CTAs exchange and route choices while rows are on the wire: what a rank sends "
      "follows from its own choices",
      pieces));
  Operation joined{.name = "route_dispatch_permute",
                   .kind = std::move(kernel),
                   .reads = {},
                   .writes = {},
                   .phase = dispatch.phase,
                   .tokens = dispatch.tokens};
  add_ports(joined, choices, "choices");
  add_ports(joined, route, "route");
  add_ports(joined, dispatch, "dispatch");
  const Dim most{"pieces", pieces};
  const std::string flags = fmt::format("route_flags_{}", rank);
  joined.writes.push_back({.role = "piece_counts", .tensor = "piece_counts"});
  joined.writes.push_back({.role = "route_flags", .tensor = flags});
  return {
      .operation = std::move(joined),
      .values = {{.name = "piece_counts",
                  .dtype = DType::kI32,
                  .shape = {most, {"E", exchanged.exchange.rank_experts}}},
                 {.name = flags, .dtype = DType::kU32, .shape = {{"2", 2}, most}, .rank = rank}}};
}

}  // namespace moejit::compiler
