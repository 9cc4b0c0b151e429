// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const RouteSpec& spec) {
  const bool is_i64 = spec.topk_ids == DType::kI64;
  KernelText text{
      .types = is_i64 ? "i64" : "i32",
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
  // Arguments that may be left out, as far as one of them is needed.
  std::vector<std::string>& arguments = text.types_used.front().arguments;
  if (spec.has_colwise_offs) {
    text.constants.push_back(
        bool_constant("kHasColwiseOffs", true, "starts of groups of columns, multiples of 128"));
  } else if (is_i64 || spec.ignores_foreign) {
    text.constants.push_back(
        bool_constant("kHasColwiseOffs", false, "columns start where rows do, or nobody asks"));
  }
  if (spec.has_colwise_offs || is_i64 || spec.ignores_foreign)
    arguments.emplace_back("kHasColwiseOffs");
  if (is_i64 || spec.ignores_foreign) arguments.emplace_back(is_i64 ? "int64_t" : "int32_t");
  if (spec.ignores_foreign) {
    text.constants.push_back(
        bool_constant("kIgnoresForeign", true, "ids from kLocalExperts on are like -1"));
    arguments.emplace_back("kIgnoresForeign");
  }
  return text;
}

}  // namespace moejit::compiler
