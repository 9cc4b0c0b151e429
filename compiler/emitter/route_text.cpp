// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const RouteSpec& spec) {
  KernelText text{
      .types = "i32",
      .tile = fmt::format("e{}k{}", spec.local_experts, spec.top_k),
      .summary =
          "top-k ids [T, K] to counts [E], aligned starts [E + 1] and the destination row of "
          "every choice [T, K]",
      .includes = {"map/route.cuh"},
      .params = "RouteParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "E"),
              integer_constant("kTopK", spec.top_k, "K"),
              integer_constant("kSplitsAlignment", spec.splits_alignment,
                               "each expert's rows start at a multiple of this"),
              integer_constant("kWarps", spec.warps, "of a CTA"),
          },
      .types_used = {{"Kernel", "Route", {"kLocalExperts", "kTopK", "kSplitsAlignment", "kWarps"}}},
  };
  if (spec.has_colwise_offs) {
    text.constants.push_back(
        {"bool", "kHasColwiseOffs", "true", "starts of groups of columns, multiples of 128"});
    text.types_used.front().arguments.emplace_back("kHasColwiseOffs");
  }
  return text;
}

}  // namespace moejit::compiler
