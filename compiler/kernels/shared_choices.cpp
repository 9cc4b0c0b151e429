// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/shared_choices.h"

#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/shared_choices_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const SharedChoicesSpec& s) {
  return fmt::format("shared_choices ranks={} rank_experts={} top_k={} shared={}{} threads={}{}{}",
                     s.ranks, s.rank_experts, s.top_k, s.shared, s.has_gate ? " gate" : "",
                     s.threads, s.topk_ids == DType::kI64 ? " i64_ids" : "",
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}
std::string to_string(const SharedDprobsSpec& s) {
  return fmt::format("shared_dprobs top_k={} shared={}{} threads={}{}", s.top_k, s.shared,
                     s.has_gate ? " gate" : "", s.threads,
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}

namespace {

using device::SharedChoicesParams;
using device::SharedDprobsParams;
using enum Access;

constexpr std::array kSharedChoicesPointers = {
    MOEJIT_POINTER(SharedChoicesParams, topk_ids, kRead),
    MOEJIT_POINTER(SharedChoicesParams, topk_probs, kRead),
    MOEJIT_POINTER(SharedChoicesParams, shared_probs, kRead),
    MOEJIT_POINTER(SharedChoicesParams, all_ids, kWrite),
    MOEJIT_POINTER(SharedChoicesParams, all_probs, kWrite),
};
constexpr std::array kSharedChoicesNumbers = {MOEJIT_NUMBER(SharedChoicesParams, tokens),
                                              MOEJIT_NUMBER(SharedChoicesParams, rank)};
constexpr ParamRecord kSharedChoicesRecord{"shared_choices",
                                           sizeof(SharedChoicesParams),
                                           kSharedChoicesPointers,
                                           {},
                                           kSharedChoicesNumbers};
static_assert(is_complete(kSharedChoicesRecord));

constexpr std::array kSharedDprobsPointers = {
    MOEJIT_POINTER(SharedDprobsParams, all_dprobs, kRead),
    MOEJIT_POINTER(SharedDprobsParams, dprobs, kWrite),
    MOEJIT_POINTER(SharedDprobsParams, dshared_probs, kWrite),
    MOEJIT_CALL_POINTERS(SharedDprobsParams),
};
constexpr std::array kSharedDprobsNumbers = {MOEJIT_NUMBER(SharedDprobsParams, tokens),
                                             MOEJIT_NUMBER(SharedDprobsParams, call.tokens)};
constexpr ParamRecord kSharedDprobsRecord{
    "shared_dprobs", sizeof(SharedDprobsParams), kSharedDprobsPointers, {}, kSharedDprobsNumbers};
static_assert(is_complete(kSharedDprobsRecord));

// Returns the constants that both kernels have.
template <typename Spec>
std::vector<NamedConstant> constants_of(const Spec& spec) {
  return {
      integer_constant("kTopK", spec.top_k, "experts that a token is routed to"),
      integer_constant("kSharedExperts", spec.shared, "experts that every token has beside them"),
      bool_constant("kHasGate", spec.has_gate, "their probability is not 1"),
      integer_constant("kThreads", spec.threads, "per CTA")};
}

}  // namespace

template <>
LaunchShape KernelKind<SharedChoicesSpec>::shape(const SharedChoicesSpec& spec) {
  return {.threads = spec.threads};
}
template <>
LaunchShape KernelKind<SharedDprobsSpec>::shape(const SharedDprobsSpec& spec) {
  return {.threads = spec.threads};
}

template <>
int64_t KernelKind<SharedChoicesSpec>::busy(const SharedChoicesSpec& spec, const CallBounds&,
                                            int64_t tokens) {
  return ceil_div(tokens * (spec.top_k + spec.shared), spec.threads);
}
template <>
int64_t KernelKind<SharedDprobsSpec>::busy(const SharedDprobsSpec& spec, const CallBounds&,
                                           int64_t tokens) {
  return ceil_div(tokens * (spec.top_k + (spec.has_gate ? 1 : 0)), spec.threads);
}

template <>
std::vector<KernelNumber> KernelKind<SharedChoicesSpec>::numbers(const SharedChoicesSpec&,
                                                                 const CallBounds&) {
  return {kTokensNumber, {.role = "rank"}};
}
template <>
std::vector<KernelNumber> KernelKind<SharedDprobsSpec>::numbers(const SharedDprobsSpec&,
                                                                const CallBounds&) {
  return {kTokensNumber, kCallTokens};
}

template <>
Work KernelKind<SharedChoicesSpec>::work(const SharedChoicesSpec& spec, const CallBounds&,
                                         const CallRows& rows) {
  const int64_t given = spec.top_k * (size_bytes(spec.topk_ids) + size_bytes(spec.probs)) +
                        (spec.has_gate ? size_bytes(spec.probs) : 0);
  return {.min_bytes = rows.tokens * (given + 8 * (spec.top_k + spec.shared))};
}
template <>
Work KernelKind<SharedDprobsSpec>::work(const SharedDprobsSpec& spec, const CallBounds&,
                                        const CallRows& rows) {
  const int64_t read = 4 * (spec.top_k + (spec.has_gate ? spec.shared : 0));
  return {.min_bytes = rows.tokens *
                       (read + size_bytes(spec.probs) * (spec.top_k + (spec.has_gate ? 1 : 0)))};
}

template <>
const ParamRecord& KernelKind<SharedChoicesSpec>::record(const SharedChoicesSpec&) {
  return kSharedChoicesRecord;
}
template <>
const ParamRecord& KernelKind<SharedDprobsSpec>::record(const SharedDprobsSpec&) {
  return kSharedDprobsRecord;
}

template <>
KernelText KernelKind<SharedChoicesSpec>::text(const SharedChoicesSpec& spec) {
  const bool is_i64 = spec.topk_ids == DType::kI64, is_bf16 = spec.probs == DType::kBF16;
  KernelText text{
      .types = fmt::format("{}_{}", is_i64 ? "i64" : "i32", is_bf16 ? "bf16" : "f32"),
      .tile = fmt::format("k{}_s{}", spec.top_k, spec.shared),
      .summary = "choices of tokens [T, K], and behind them the shared experts of their rank",
      .includes = {"map/shared_choices.cuh"},
      .params = "SharedChoicesParams",
      .constants = constants_of(spec),
      .types_used = {{"Kernel",
                      "SharedChoices",
                      {"kRanks", "kRankExperts", "kTopK", "kSharedExperts", "kHasGate",
                       "kThreads"}}},
  };
  text.constants.insert(text.constants.begin(),
                        {integer_constant("kRanks", spec.ranks, "GPUs that share the experts"),
                         integer_constant("kRankExperts", spec.rank_experts,
                                          "experts of a rank that tokens choose")});
  std::vector<std::string>& arguments = text.types_used.back().arguments;
  if (is_i64 || is_bf16) arguments.emplace_back(is_i64 ? "int64_t" : "int32_t");
  if (is_bf16) arguments.emplace_back("Bf16");
  return text;
}

template <>
KernelText KernelKind<SharedDprobsSpec>::text(const SharedDprobsSpec& spec) {
  const bool is_bf16 = spec.probs == DType::kBF16;
  KernelText text{
      .types = is_bf16 ? "bf16" : "f32",
      .tile = fmt::format("k{}_s{}", spec.top_k, spec.shared),
      .summary = "gradients of all choices' probabilities to those that callers gave",
      .includes = {"map/shared_choices.cuh"},
      .params = "SharedDprobsParams",
      .constants = constants_of(spec),
      .types_used = {{"Kernel",
                      "SharedDprobs",
                      {"kTopK", "kSharedExperts", "kHasGate", "kThreads"}}},
  };
  if (is_bf16) text.types_used.back().arguments.emplace_back("Bf16");
  return text;
}

}  // namespace moejit::compiler
