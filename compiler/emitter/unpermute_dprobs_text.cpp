// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const UnpermuteDprobsSpec& spec) {
  const bool is_bf16 = spec.probs == DType::kBF16;
  KernelText text{
      .types = is_bf16 ? "bf16" : "f32",
      .tile = fmt::format("k{}", spec.top_k),
      .summary =
          "gradients of the rows' probabilities [P], in blocks, to the choices of tokens "
          "[T, K]",
      .includes = {"map/unpermute_dprobs.cuh"},
      .params = "UnpermuteDprobsParams",
      .constants =
          {
              integer_constant("kTopK", spec.top_k, "experts that a token is routed to"),
              integer_constant("kDprobsColumns", spec.dprobs_columns, "blocks of a row's dprobs"),
              bool_constant("kAddsBiasDprobs", spec.adds_bias_dprobs,
                            "what the bias adds, behind the blocks"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .types_used = {{"Kernel",
                      "UnpermuteDprobs",
                      {"kTopK", "kDprobsColumns", "kAddsBiasDprobs", "kThreads"}}},
  };
  if (is_bf16) text.types_used.back().arguments.emplace_back("Bf16");
  return text;
}

}  // namespace moejit::compiler
