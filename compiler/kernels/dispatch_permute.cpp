// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange_parts.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using enum Access;
using device::DispatchPermuteParams;

constexpr std::array kDispatchPermutePointers = {
    MOEJIT_POINTER(DispatchPermuteParams, input, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, input_scale_inv, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, topk_ids, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, row_map, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, slot_probs, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, counts, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, offs, kRead),
    MOEJIT_RANK_POINTERS(DispatchPermuteParams, slots, kReadWrite),
    MOEJIT_RANK_POINTERS(DispatchPermuteParams, slot_scales, kReadWrite),
    MOEJIT_RANK_POINTERS(DispatchPermuteParams, row_flags, kReadWrite),
    MOEJIT_POINTER(DispatchPermuteParams, output, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, output_probs, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, row_tokens, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, kept_output, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, kept_scale_inv, kWrite),
    MOEJIT_POINTER(DispatchPermuteParams, saved_tokens, kRead),
    MOEJIT_POINTER(DispatchPermuteParams, tickets, kReadWrite),
    MOEJIT_GROUP_POINTERS(DispatchPermuteParams),
};
constexpr std::array kDispatchPermuteNumbers = {MOEJIT_GROUP_NUMBERS(DispatchPermuteParams),
                                                MOEJIT_NUMBER(DispatchPermuteParams, tokens)};
constexpr ParamRecord kDispatchPermuteRecord{"dispatch_permute",
                                             sizeof(DispatchPermuteParams),
                                             kDispatchPermutePointers,
                                             {},
                                             kDispatchPermuteNumbers};
static_assert(is_complete(kDispatchPermuteRecord));

}  // namespace

std::string to_string(const DispatchPermuteSpec& s) {
  return fmt::format(
      "dispatch_permute {} columns={} input={} output={} epsilon={:g}{}{}{} sender_sms={} "
      "rows_in_shared={} threads={} "
      "segments_in_flight={}",
      shape_text(s.exchange), s.columns, to_string(s.input), to_string(s.output), s.epsilon,
      s.moves_probs ? " moves_probs" : "", s.tells_tokens ? " tells_tokens" : "",
      s.keeps_rows ? " keeps_rows" : "", s.sender_sms, s.rows_in_shared, s.threads,
      s.segments_in_flight);
}

// CTAs wait for peers, so all have to be resident: there are as many as an SM can hold.
template <>
LaunchShape KernelKind<DispatchPermuteSpec>::shape(const DispatchPermuteSpec& spec) {
  return {.threads = spec.threads,
          .ctas_per_sm = 1024 / spec.threads,
          .shared_bytes = std::max(16, shared_rows_bytes(spec.rows_in_shared, spec.output,
                                                         spec.columns, spec.exchange.top_k))};
}

template <>
int64_t KernelKind<DispatchPermuteSpec>::busy(const DispatchPermuteSpec& spec, const CallBounds&,
                                              int64_t) {
  return ctas_of(spec.exchange, int64_t{spec.exchange.ranks + 1} * chunks_of(spec.exchange));
}

template <>
std::vector<KernelNumber> KernelKind<DispatchPermuteSpec>::numbers(const DispatchPermuteSpec&,
                                                                   const CallBounds&) {
  return {kRankNumber, kTimeoutNumber, kTokensNumber};
}

template <>
Work KernelKind<DispatchPermuteSpec>::work(const DispatchPermuteSpec& spec, const CallBounds&,
                                           const CallRows& rows) {
  const double tokens = static_cast<double>(rows.tokens);
  // Own rows are read, and written to all ranks that want them. Rows that came are read, and
  // written to their permuted rows, and once more if they are kept.
  const double slots = ranks_of_token(spec.exchange);
  const auto moved = static_cast<int64_t>(tokens * slots * (spec.keeps_rows ? 3.0 : 2.0));
  return {.min_bytes = rows.tokens * exchanged_row_bytes(spec.input, spec.columns) +
                       (moved + rows.padded) * exchanged_row_bytes(spec.output, spec.columns),
          .sent_bytes = sent_row_bytes(spec.exchange, rows.tokens,
                                       exchanged_row_bytes(spec.output, spec.columns))};
}

template <>
const ParamRecord& KernelKind<DispatchPermuteSpec>::record(const DispatchPermuteSpec&) {
  return kDispatchPermuteRecord;
}

template <>
KernelText KernelKind<DispatchPermuteSpec>::text(const DispatchPermuteSpec& spec) {
  const SentRows rows{spec.input, spec.output, spec.epsilon};
  KernelText text = chunked_text(spec.exchange);
  text.types = rows.types();
  text.summary = fmt::format(
      "{} to the slots of their tokens at the ranks of their experts, and all slots' rows to their "
      "permuted rows",
      rows.summary());
  text.includes = {"exchange/dispatch_permute.cuh"};
  text.params = "DispatchPermuteParams";
  add_dispatch(text, spec, 0, "Kernel");
  return text;
}

void add_dispatch(KernelText& text, const DispatchPermuteSpec& spec, int32_t slot_chunks,
                  std::string name) {
  const SentRows rows{spec.input, spec.output, spec.epsilon};
  add_columns(text, spec.columns);
  text.constants.push_back(
      bool_constant("kMovesProbs", spec.moves_probs, "probabilities go to the permuted rows"));
  const bool is_through_shared = spec.rows_in_shared > 0;
  text.constants.push_back(
      integer_constant("kSlotChunks", is_through_shared ? slot_chunks : chunks_of(spec.exchange),
                       "chunks of own tokens whose rows go through slots"));
  add_sms(text, spec.exchange, spec.sender_sms);
  add_threads(text, spec.threads, spec.segments_in_flight);
  add_send(text, rows, spec.rows_in_shared);
  text.types_used.push_back({"Store",
                             spec.keeps_rows ? "StoreRowsAndPermuted" : "StorePermuted",
                             {"kColumns", "kTopK", "kRankExperts", "kMovesProbs",
                              spec.output == DType::kBF16 ? "Bf16" : "E4m3"}});
  if (spec.tells_tokens) text.types_used.back().arguments.push_back("true");
  text.types_used.push_back({"Receive",
                             is_through_shared ? "ReceiveThroughShared" : "ReceiveByThreads",
                             {"Send::Stored", "Store", "Exchange", "kThreads",
                              is_through_shared ? "kRowsInShared" : "kSegmentsInFlight"}});
  if (is_through_shared) text.types_used.back().arguments.emplace_back("kFirstByte");
  text.types_used.push_back(
      {std::move(name),
       "DispatchPermute",
       {"Send", "Receive", "Store", "Exchange", "kSlotChunks", "Sms", "kThreads"}});
}

}  // namespace moejit::compiler
