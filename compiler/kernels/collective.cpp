// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/collective.h"

#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/collective_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using enum Access;

using PackParams = device::PackChoicesParams;
using TakeParams = device::TakeChoicesParams;
using CompareParams = device::CompareTokensParams;
using CombineParams = device::CombineArrivedParams;

constexpr std::array kPackPointers = {
    MOEJIT_POINTER(PackParams, topk_ids, kRead),
    MOEJIT_POINTER(PackParams, topk_probs, kRead),
    MOEJIT_POINTER(PackParams, packed_ids, kWrite),
    MOEJIT_POINTER(PackParams, packed_probs, kWrite),
    MOEJIT_POINTER(PackParams, saved_tokens, kWrite),
};
constexpr std::array kPackNumbers = {MOEJIT_NUMBER(PackParams, tokens)};
constexpr ParamRecord kPack{"pack_choices", sizeof(PackParams), kPackPointers, {}, kPackNumbers};
static_assert(is_complete(kPack));

constexpr std::array kTakePointers = {
    MOEJIT_POINTER(TakeParams, choice_ids, kRead),
    MOEJIT_POINTER(TakeParams, choice_probs, kRead),
    MOEJIT_POINTER(TakeParams, slot_ids, kWrite),
    MOEJIT_POINTER(TakeParams, slot_probs, kWrite),
};
constexpr std::array kTakeNumbers = {MOEJIT_NUMBER(TakeParams, rank)};
constexpr ParamRecord kTake{"take_choices", sizeof(TakeParams), kTakePointers, {}, kTakeNumbers};
static_assert(is_complete(kTake));

constexpr std::array kComparePointers = {MOEJIT_CALL_POINTERS(CompareParams)};
constexpr std::array kCompareNumbers = {MOEJIT_NUMBER(CompareParams, call.tokens)};
constexpr ParamRecord kCompare{
    "compare_tokens", sizeof(CompareParams), kComparePointers, {}, kCompareNumbers};
static_assert(is_complete(kCompare));

constexpr std::array kCombinePointers = {
    MOEJIT_POINTER(CombineParams, results, kRead),
    MOEJIT_POINTER(CombineParams, dprobs_of_ranks, kRead),
    MOEJIT_POINTER(CombineParams, status_of_ranks, kRead),
    MOEJIT_POINTER(CombineParams, topk_ids, kRead),
    MOEJIT_POINTER(CombineParams, output, kWrite),
    MOEJIT_POINTER(CombineParams, dprobs, kWrite),
    MOEJIT_POINTER(CombineParams, status, kReadWrite),
};
constexpr std::array kCombineNumbers = {MOEJIT_NUMBER(CombineParams, tokens)};
constexpr ParamRecord kCombine{
    "combine_arrived", sizeof(CombineParams), kCombinePointers, {}, kCombineNumbers};
static_assert(is_complete(kCombine));

int64_t choices_of(const ExchangeShape& exchange) {
  return int64_t{exchange.max_tokens} * exchange.top_k;
}

// Returns the constants of a kernel that only looks at choices.
KernelText choices_text(const ExchangeShape& exchange, int32_t threads) {
  KernelText text{
      .types = exchange.topk_ids == DType::kI64 ? "i64" : "i32",
      .tile = tile_of(exchange),
      .includes = {"exchange/gathered_choices.cuh"},
      .constants = {integer_constant("kRanks", exchange.ranks, "GPUs that exchange rows"),
                    integer_constant("kRankExperts", exchange.rank_experts, "experts of a rank"),
                    integer_constant("kTopK", exchange.top_k, "experts that a token is routed to"),
                    integer_constant("kMaxTokens", exchange.max_tokens, "of a rank")}};
  add_threads(text, threads, 0);
  return text;
}

}  // namespace

std::string to_string(const PackChoicesSpec& s) {
  return fmt::format("pack_choices {} threads={}{}", shape_text(s.exchange), s.threads,
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}
std::string to_string(const TakeChoicesSpec& s) {
  return fmt::format("take_choices {} threads={}", shape_text(s.exchange), s.threads);
}
std::string to_string(const CompareTokensSpec& s) {
  return fmt::format("compare_tokens threads={}", s.threads);
}
std::string to_string(const CombineArrivedSpec& s) {
  return fmt::format("combine_arrived {}{} columns={}{}{} threads={}", shape_text(s.exchange),
                     s.adds_rows ? " adds_rows" : "", s.columns, s.has_dprobs ? " dprobs" : "",
                     s.probs == DType::kBF16 ? " bf16_probs" : "", s.threads);
}

template <>
LaunchShape KernelKind<PackChoicesSpec>::shape(const PackChoicesSpec& spec) {
  return {.threads = spec.threads};
}
template <>
LaunchShape KernelKind<TakeChoicesSpec>::shape(const TakeChoicesSpec& spec) {
  return {.threads = spec.threads};
}
template <>
LaunchShape KernelKind<CompareTokensSpec>::shape(const CompareTokensSpec& spec) {
  return {.threads = spec.threads};
}
template <>
LaunchShape KernelKind<CombineArrivedSpec>::shape(const CombineArrivedSpec& spec) {
  const bool is_wide = spec.adds_rows || spec.exchange.ranks > 4;  // with more registers
  return {.threads = spec.threads, .ctas_per_sm = (is_wide ? 768 : 1024) / spec.threads};
}

// Choices are sent for T_max tokens, and status words come also in a call without tokens.
template <>
int64_t KernelKind<PackChoicesSpec>::busy(const PackChoicesSpec& spec, const CallBounds&, int64_t) {
  return ceil_div(choices_of(spec.exchange), int64_t{spec.threads});
}
template <>
int64_t KernelKind<TakeChoicesSpec>::busy(const TakeChoicesSpec& spec, const CallBounds&, int64_t) {
  return ceil_div(spec.exchange.ranks * choices_of(spec.exchange), int64_t{spec.threads});
}
template <>
int64_t KernelKind<CompareTokensSpec>::busy(const CompareTokensSpec&, const CallBounds&, int64_t) {
  return 1;
}
template <>
int64_t KernelKind<CombineArrivedSpec>::busy(const CombineArrivedSpec& spec, const CallBounds&,
                                             int64_t tokens) {
  return std::max<int64_t>(ceil_div(tokens, int64_t{spec.exchange.chunk_tokens}), 1);
}

template <>
std::vector<KernelNumber> KernelKind<PackChoicesSpec>::numbers(const PackChoicesSpec&,
                                                               const CallBounds&) {
  return {kTokensNumber};
}
template <>
std::vector<KernelNumber> KernelKind<TakeChoicesSpec>::numbers(const TakeChoicesSpec&,
                                                               const CallBounds&) {
  return {{.role = "rank"}};
}
template <>
std::vector<KernelNumber> KernelKind<CompareTokensSpec>::numbers(const CompareTokensSpec&,
                                                                 const CallBounds&) {
  return {kCallTokens};
}
template <>
std::vector<KernelNumber> KernelKind<CombineArrivedSpec>::numbers(const CombineArrivedSpec&,
                                                                  const CallBounds&) {
  return {kTokensNumber};
}

template <>
Work KernelKind<PackChoicesSpec>::work(const PackChoicesSpec& spec, const CallBounds&,
                                       const CallRows& rows) {
  const int64_t own = rows.tokens * spec.exchange.top_k;
  return {.min_bytes = own * (size_bytes(spec.exchange.topk_ids) + size_bytes(spec.probs)) +
                       8 * choices_of(spec.exchange)};
}
template <>
Work KernelKind<TakeChoicesSpec>::work(const TakeChoicesSpec& spec, const CallBounds&,
                                       const CallRows&) {
  return {.min_bytes = 16 * spec.exchange.ranks * choices_of(spec.exchange)};
}
template <>
Work KernelKind<CompareTokensSpec>::work(const CompareTokensSpec&, const CallBounds&,
                                         const CallRows&) {
  return {.min_bytes = 8};
}
template <>
Work KernelKind<CombineArrivedSpec>::work(const CombineArrivedSpec& spec, const CallBounds&,
                                          const CallRows& rows) {
  const int64_t read = spec.adds_rows ? spec.exchange.top_k : spec.exchange.ranks;
  return {.min_bytes = rows.tokens * (read + 1) * 2 * spec.columns};
}

template <>
const ParamRecord& KernelKind<PackChoicesSpec>::record(const PackChoicesSpec&) {
  return kPack;
}
template <>
const ParamRecord& KernelKind<TakeChoicesSpec>::record(const TakeChoicesSpec&) {
  return kTake;
}
template <>
const ParamRecord& KernelKind<CompareTokensSpec>::record(const CompareTokensSpec&) {
  return kCompare;
}
template <>
const ParamRecord& KernelKind<CombineArrivedSpec>::record(const CombineArrivedSpec&) {
  return kCombine;
}

template <>
KernelText KernelKind<PackChoicesSpec>::text(const PackChoicesSpec& spec) {
  KernelText text = choices_text(spec.exchange, spec.threads);
  text.summary = "top-k ids and probabilities [T, K] as all ranks get them [T_max, K]";
  text.params = "PackChoicesParams";
  text.types_used = {{"Kernel",
                      "PackChoices",
                      {"kRanks", "kRankExperts", "kTopK", "kMaxTokens", "kThreads",
                       id_type(spec.exchange), prob_type(spec.probs)}}};
  return text;
}
template <>
KernelText KernelKind<TakeChoicesSpec>::text(const TakeChoicesSpec& spec) {
  KernelText text = choices_text(spec.exchange, spec.threads);
  text.summary = "choices of all ranks [S, K] to those of this rank's experts";
  text.params = "TakeChoicesParams";
  text.types_used = {
      {"Kernel", "TakeChoices", {"kRanks", "kRankExperts", "kTopK", "kMaxTokens", "kThreads"}}};
  return text;
}
template <>
KernelText KernelKind<CompareTokensSpec>::text(const CompareTokensSpec& spec) {
  KernelText text{.types = "i64",
                  .tile = "t",
                  .summary = "whether a backward call has the T of its forward call",
                  .includes = {"exchange/gathered_choices.cuh"},
                  .params = "CompareTokensParams",
                  .types_used = {{"Kernel", "CompareTokens", {"kThreads"}}}};
  add_threads(text, spec.threads, 0);
  return text;
}
template <>
KernelText KernelKind<CombineArrivedSpec>::text(const CombineArrivedSpec& spec) {
  KernelText text = chunked_text(spec.exchange);
  text.types = "bf16";
  text.summary = spec.adds_rows ? "rows of the experts of all ranks, added for each token"
                                : "sums of the experts of each rank, added for each token";
  text.includes = {"exchange/combine_arrived.cuh"};
  text.params = "CombineArrivedParams";
  add_columns(text, spec.columns);
  text.constants.push_back(
      bool_constant("kHasDprobs", spec.has_dprobs, "gradients of probabilities come along"));
  add_threads(text, spec.threads, 0);
  text.types_used.push_back(
      {"Arrived", spec.adds_rows ? "ArrivedRows" : "ArrivedSums", {"Exchange", "kColumns"}});
  text.types_used.push_back(
      {"Kernel",
       "CombineArrived",
       {"Arrived", "Exchange", "kHasDprobs", prob_type(spec.probs), "kThreads"}});
  return text;
}

}  // namespace moejit::compiler
