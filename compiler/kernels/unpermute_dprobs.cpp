// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/unpermute_dprobs.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/unpermute_dprobs_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const UnpermuteDprobsSpec& s) {
  return fmt::format("unpermute_dprobs top_k={} dprobs_columns={}{} threads={}{}", s.top_k,
                     s.dprobs_columns, s.adds_bias_dprobs ? " bias_dprobs" : "", s.threads,
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}

namespace {

using device::UnpermuteDprobsParams;
using enum Access;

constexpr std::array kUnpermuteDprobsPointers = {
    MOEJIT_POINTER(UnpermuteDprobsParams, row_map, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, bias_dprobs, kRead),
    MOEJIT_POINTER(UnpermuteDprobsParams, dprobs, kWrite),
    MOEJIT_CALL_POINTERS(UnpermuteDprobsParams),
};

constexpr std::array kUnpermuteDprobsNumbers = {MOEJIT_NUMBER(UnpermuteDprobsParams, rows),
                                                MOEJIT_NUMBER(UnpermuteDprobsParams, call.tokens)};

constexpr ParamRecord kUnpermuteDprobsRecord{"unpermute_dprobs",
                                             sizeof(UnpermuteDprobsParams),
                                             kUnpermuteDprobsPointers,
                                             {},
                                             kUnpermuteDprobsNumbers};
static_assert(is_complete(kUnpermuteDprobsRecord));

}  // namespace

template <>
LaunchShape KernelKind<UnpermuteDprobsSpec>::shape(const UnpermuteDprobsSpec& spec) {
  return {.threads = spec.threads};
}

template <>
int64_t KernelKind<UnpermuteDprobsSpec>::busy(const UnpermuteDprobsSpec& spec, const CallBounds&,
                                              int64_t tokens) {
  return ceil_div(tokens * spec.top_k, spec.threads);
}

template <>
std::vector<KernelNumber> KernelKind<UnpermuteDprobsSpec>::numbers(const UnpermuteDprobsSpec&,
                                                                   const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kTokens}, kCallTokens};
}

template <>
Work KernelKind<UnpermuteDprobsSpec>::work(const UnpermuteDprobsSpec& spec, const CallBounds&,
                                           const CallRows& rows) {
  const int64_t parts = spec.dprobs_columns + (spec.adds_bias_dprobs ? 1 : 0);
  return {.min_bytes =
              4 * rows.routed * parts + (4 + size_bytes(spec.probs)) * rows.tokens * spec.top_k};
}

template <>
const ParamRecord& KernelKind<UnpermuteDprobsSpec>::record(const UnpermuteDprobsSpec&) {
  return kUnpermuteDprobsRecord;
}

template <>
KernelText KernelKind<UnpermuteDprobsSpec>::text(const UnpermuteDprobsSpec& spec) {
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
