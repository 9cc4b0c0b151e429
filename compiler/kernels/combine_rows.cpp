// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using enum Access;
using device::CombineRowsParams;

constexpr std::array kCombineRowsPointers = {
    MOEJIT_POINTER(CombineRowsParams, expert_rows, kRead),
    MOEJIT_POINTER(CombineRowsParams, row_map, kRead),
    MOEJIT_POINTER(CombineRowsParams, slot_ids, kRead),
    MOEJIT_POINTER(CombineRowsParams, slot_dprobs, kRead),
    MOEJIT_POINTER(CombineRowsParams, topk_ids, kRead),
    MOEJIT_RANK_POINTERS(CombineRowsParams, results, kReadWrite),
    MOEJIT_RANK_POINTERS(CombineRowsParams, dprobs_home, kReadWrite),
    MOEJIT_RANK_POINTERS(CombineRowsParams, result_flags, kReadWrite),
    MOEJIT_POINTER(CombineRowsParams, output, kWrite),
    MOEJIT_POINTER(CombineRowsParams, dprobs, kWrite),
    MOEJIT_POINTER(CombineRowsParams, tickets, kReadWrite),
    MOEJIT_GROUP_POINTERS(CombineRowsParams),
};
constexpr std::array kCombineRowsNumbers = {MOEJIT_GROUP_NUMBERS(CombineRowsParams),
                                            MOEJIT_NUMBER(CombineRowsParams, tokens)};
constexpr ParamRecord kCombineRowsRecord{
    "combine_rows", sizeof(CombineRowsParams), kCombineRowsPointers, {}, kCombineRowsNumbers};
static_assert(is_complete(kCombineRowsRecord));

constexpr int32_t kWalkBytes = 16;  // of shared memory, in exchange/unit_walk.cuh

}  // namespace

std::string to_string(const CombineRowsSpec& s) {
  return fmt::format("combine_rows {}{} columns={}{}{} sender_sms={} rows_in_shared={} threads={}",
                     shape_text(s.exchange), s.sends_rows ? " sends_rows" : "", s.columns,
                     s.has_dprobs ? " dprobs" : "", s.probs == DType::kBF16 ? " bf16_probs" : "",
                     s.sender_sms, s.rows_in_shared, s.threads);
}

// The rows of two CTAs fill the shared memory of an SM. A thread keeps the sums of at most four
// runs of a row in registers, which bounds the columns.
int32_t added_rows_in_shared(int32_t columns) {
  constexpr int32_t kRoom = 108 * 1024, kMostColumns = 8192, kMostRows = 24, kRunColumns = 8;
  if (columns % kRunColumns != 0 || columns > kMostColumns) return 0;
  return std::min(kRoom / (2 * columns), kMostRows);
}

namespace {

// Returns the shared memory of a CTA that adds rows from there. It has the words of the walk, the
// queue of units, the barriers of rows, and rows.
int32_t shared_bytes_of_rows(const CombineRowsSpec& spec) {
  constexpr int32_t kPlaces = device::kUnitPlaces;
  const int32_t choices = spec.exchange.chunk_tokens * spec.exchange.top_k;
  const int32_t queue =
      24 * kPlaces + 4 * kPlaces * (2 + choices + 2 * spec.exchange.chunk_tokens) + 4 * choices;
  return align_up(align_up(kWalkBytes + queue, 8) + 16 * spec.rows_in_shared, 128) +
         spec.rows_in_shared * 2 * spec.columns;
}

}  // namespace

// CTAs wait for peers, so all have to be resident: there are as many as an SM can hold.
template <>
LaunchShape KernelKind<CombineRowsSpec>::shape(const CombineRowsSpec& spec) {
  if (spec.sends_rows)
    return {.threads = spec.threads, .ctas_per_sm = 768 / spec.threads, .shared_bytes = kWalkBytes};
  if (spec.rows_in_shared == 0) {
    const int32_t listed = 4 * (spec.exchange.top_k + 1) * spec.exchange.chunk_tokens;
    return {.threads = spec.threads,
            .ctas_per_sm = 1024 / spec.threads,
            .shared_bytes = kWalkBytes + listed};
  }
  return {.threads = spec.threads, .ctas_per_sm = 2, .shared_bytes = shared_bytes_of_rows(spec)};
}

template <>
int64_t KernelKind<CombineRowsSpec>::busy(const CombineRowsSpec& spec, const CallBounds&, int64_t) {
  return ctas_of(spec.exchange, int64_t{spec.exchange.ranks} * chunks_of(spec.exchange));
}

template <>
std::vector<KernelNumber> KernelKind<CombineRowsSpec>::numbers(const CombineRowsSpec&,
                                                               const CallBounds&) {
  return {kRankNumber, kTimeoutNumber, kTokensNumber};
}

template <>
Work KernelKind<CombineRowsSpec>::work(const CombineRowsSpec& spec, const CallBounds&,
                                       const CallRows& rows) {
  // Each row of the experts is read once. Sums, or rows, are written at home and read there; own
  // tokens are written. There are as many for tokens of others here as for own ones elsewhere.
  const double ranks = spec.exchange.ranks;
  const double others = spec.sends_rows
                            ? static_cast<double>(rows.routed) * (ranks - 1.0) / ranks
                            : static_cast<double>(rows.tokens) * others_of_token(spec.exchange);
  const int64_t choices = rows.tokens * (spec.exchange.top_k - spec.exchange.shared);
  const int64_t elsewhere = choices * (spec.exchange.ranks - 1) / spec.exchange.ranks;
  const int64_t sent = spec.sends_rows
                           ? elsewhere * 2 * spec.columns
                           : sent_row_bytes(spec.exchange, rows.tokens, int64_t{2} * spec.columns);
  return {.min_bytes =
              (rows.routed + 2 * static_cast<int64_t>(others) + rows.tokens) * 2 * spec.columns,
          .sent_bytes = sent + (spec.has_dprobs ? 4 * elsewhere : 0)};
}

template <>
const ParamRecord& KernelKind<CombineRowsSpec>::record(const CombineRowsSpec&) {
  return kCombineRowsRecord;
}

template <>
KernelText KernelKind<CombineRowsSpec>::text(const CombineRowsSpec& spec) {
  KernelText text = chunked_text(spec.exchange);
  text.types = "bf16";
  text.summary =
      spec.sends_rows
          ? "rows of the experts to the tokens' ranks, added there for each token"
          : "rows of the experts, added for each token, to the tokens' ranks and added there";
  text.includes = {spec.sends_rows            ? "exchange/combine_each_row.cuh"
                   : spec.rows_in_shared == 0 ? "exchange/combine_rows.cuh"
                                              : "exchange/combine_through_shared.cuh"};
  text.params = "CombineRowsParams";
  add_columns(text, spec.columns);
  text.constants.push_back(
      bool_constant("kHasDprobs", spec.has_dprobs, "gradients of probabilities go along"));
  add_sms(text, spec.exchange, spec.sender_sms);
  add_threads(text, spec.threads, 0);
  text.types_used.push_back(
      {"Kernel",
       spec.sends_rows            ? "CombineEachRow"
       : spec.rows_in_shared == 0 ? "CombineRows"
                                  : "CombineThroughShared",
       {"Exchange", "kColumns", "kHasDprobs", prob_type(spec.probs), "Sms", "kThreads"}});
  if (spec.rows_in_shared > 0) {
    text.constants.push_back(integer_constant("kRowsInShared", spec.rows_in_shared,
                                              "rows that a CTA has in shared memory"));
    text.types_used.back().arguments.emplace_back("kRowsInShared");
  }
  return text;
}

}  // namespace moejit::compiler
