// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/route_map.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/route.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const RouteMapSpec& s) {
  return fmt::format("route_map local_experts={} top_k={} splits_alignment={}{} warps={}",
                     s.local_experts, s.top_k, s.splits_alignment,
                     s.has_colwise_offs ? " colwise_offs" : "", s.warps);
}

template <>
LaunchShape KernelKind<RouteMapSpec>::shape(const RouteMapSpec& spec) {
  return {.threads = 32 * spec.warps, .shared_bytes = 4 * (2 + spec.warps) * spec.local_experts};
}

template <>
int64_t KernelKind<RouteMapSpec>::busy(const RouteMapSpec& spec, const CallBounds&,
                                       int64_t tokens) {
  // At least one CTA writes counts and offs. Every CTA reads all of the map, so beyond 32 CTAs the
  // counting takes most of the time.
  const int64_t steps = tokens * ceil_div(spec.local_experts, 32);
  return std::clamp<int64_t>(ceil_div(steps, 8 * spec.warps), 1, 32);
}

template <>
std::vector<KernelNumber> KernelKind<RouteMapSpec>::numbers(const RouteMapSpec&,
                                                            const CallBounds&) {
  return {{.role = "tokens", .dim = CallDim::kTokens}, {.role = "max_rows", .dim = CallDim::kRows}};
}

template <>
Work KernelKind<RouteMapSpec>::work(const RouteMapSpec& spec, const CallBounds&,
                                    const CallRows& rows) {
  const int64_t bytes_of_token = spec.local_experts + 4 * int64_t{spec.top_k};
  return {.min_bytes = rows.tokens * bytes_of_token + 8 * spec.local_experts};
}

template <>
const ParamRecord& KernelKind<RouteMapSpec>::record(const RouteMapSpec&) {
  return KernelKind<RouteSpec>::record({});
}

template <>
KernelText KernelKind<RouteMapSpec>::text(const RouteMapSpec& spec) {
  return {
      .types = "u8",
      .tile = fmt::format("e{}k{}", spec.local_experts, spec.top_k),
      .summary =
          "a routing map [T, E] to counts [E], aligned starts [E + 1] and the destination row of "
          "every choice [T, K]",
      .includes = {"map/route_map.cuh"},
      .params = "RouteParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "E"),
              integer_constant("kTopK", spec.top_k, "K, the most experts of a token"),
              integer_constant("kSplitsAlignment", spec.splits_alignment,
                               "each expert's rows start at a multiple of this"),
              integer_constant("kWarps", spec.warps, "of a CTA"),
              bool_constant("kHasColwiseOffs", spec.has_colwise_offs,
                            "starts of groups of columns, multiples of 128"),
          },
      .types_used = {{"Kernel",
                      "RouteMap",
                      {"kLocalExperts", "kTopK", "kSplitsAlignment", "kWarps", "kHasColwiseOffs"}}},
  };
}

}  // namespace moejit::compiler
