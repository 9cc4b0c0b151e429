// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange.h"

#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/exchange_params.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moejit::compiler {

int32_t chunks_of(const ExchangeShape& exchange) {
  return ceil_div(exchange.max_tokens, exchange.chunk_tokens);
}

int32_t pieces_of(const ExchangeShape& exchange, int32_t parts) { return exchange.ranks * parts; }

int32_t rows_in_shared(const ExchangeShape& exchange, DType dtype, int32_t columns) {
  // Four CTAs of an SM have as much in each half.
  constexpr int64_t kWanted = 16 * 1024, kMost = 26 * 1024;
  const int64_t bytes = exchanged_row_bytes(dtype, columns);
  if (bytes > kWanted) return bytes <= kMost ? 2 : 0;
  const int64_t of_chunk = ceil_div(exchange.chunk_tokens, 2);
  return static_cast<int32_t>(2 * std::min<int64_t>(kWanted / bytes, of_chunk));
}

int64_t ctas_of(const ExchangeShape& exchange, int64_t busy) {
  constexpr int64_t kAll = 1 << 16;
  return exchange.sms > 0 ? kAll : busy;
}

int64_t slots_of(const ExchangeShape& exchange) {
  return int64_t{exchange.ranks} * exchange.max_tokens;
}

double ranks_of_token(const ExchangeShape& exchange) {
  const int32_t rank_experts = exchange.rank_experts - exchange.shared;
  const int32_t experts = exchange.ranks * rank_experts, elsewhere = experts - rank_experts;
  double share_without = 1.0;  // of all draws of K experts, the share without a given rank
  for (int32_t k = 0; k < std::min(exchange.top_k - exchange.shared, experts); ++k)
    share_without *= static_cast<double>(std::max(elsewhere - k, 0)) / (experts - k);
  return exchange.ranks * (1.0 - share_without);
}

double others_of_token(const ExchangeShape& exchange) {
  return ranks_of_token(exchange) * (exchange.ranks - 1) / exchange.ranks;
}

int64_t sent_row_bytes(const ExchangeShape& exchange, int64_t tokens, int64_t row_bytes) {
  return std::llround(static_cast<double>(tokens * row_bytes) * others_of_token(exchange));
}

int32_t shared_rows_bytes(int32_t rows, DType dtype, int32_t columns, int32_t top_k) {
  if (rows == 0) return 0;
  const int32_t bytes = dtype == DType::kBF16 ? 2 * columns : columns;
  const auto scale_bytes = static_cast<int32_t>(exchanged_row_bytes(dtype, columns)) - bytes;
  return align_up(kFirstSharedRow + rows * (bytes + 4 + 4 * top_k), 16) + rows * scale_bytes;
}

int64_t exchanged_row_bytes(DType dtype, int64_t columns) {
  return dtype == DType::kBF16 ? 2 * columns : columns + 4 * ceil_div(columns, int64_t{128});
}

namespace {

using enum Access;

using ChoicesParams = device::ExchangeChoicesParams;
using DispatchParams = device::DispatchRowsParams;
using AwaitParams = device::AwaitRowsParams;

constexpr std::array kChoicesPointers = {
    MOEJIT_POINTER(ChoicesParams, topk_ids, kRead),
    MOEJIT_POINTER(ChoicesParams, topk_probs, kRead),
    MOEJIT_RANK_POINTERS(ChoicesParams, choice_ids, kReadWrite),
    MOEJIT_RANK_POINTERS(ChoicesParams, choice_probs, kReadWrite),
    MOEJIT_RANK_POINTERS(ChoicesParams, choice_flags, kReadWrite),
    MOEJIT_POINTER(ChoicesParams, slot_ids, kWrite),
    MOEJIT_POINTER(ChoicesParams, slot_probs, kWrite),
    MOEJIT_POINTER(ChoicesParams, saved_tokens, kWrite),
    MOEJIT_GROUP_POINTERS(ChoicesParams),
};
constexpr std::array kChoicesNumbers = {MOEJIT_GROUP_NUMBERS(ChoicesParams),
                                        MOEJIT_NUMBER(ChoicesParams, tokens)};
constexpr ParamRecord kChoices{
    "exchange_choices", sizeof(ChoicesParams), kChoicesPointers, {}, kChoicesNumbers};
static_assert(is_complete(kChoices));

constexpr std::array kDispatchPointers = {
    MOEJIT_POINTER(DispatchParams, input, kRead),
    MOEJIT_POINTER(DispatchParams, input_scale_inv, kRead),
    MOEJIT_POINTER(DispatchParams, topk_ids, kRead),
    MOEJIT_RANK_POINTERS(DispatchParams, slots, kWrite),
    MOEJIT_RANK_POINTERS(DispatchParams, slot_scales, kWrite),
    MOEJIT_RANK_POINTERS(DispatchParams, row_flags, kReadWrite),
    MOEJIT_POINTER(DispatchParams, saved_tokens, kRead),
    MOEJIT_POINTER(DispatchParams, tickets, kReadWrite),
    MOEJIT_GROUP_POINTERS(DispatchParams),
};
constexpr std::array kDispatchNumbers = {MOEJIT_GROUP_NUMBERS(DispatchParams),
                                         MOEJIT_NUMBER(DispatchParams, tokens)};
constexpr ParamRecord kDispatch{
    "dispatch_rows", sizeof(DispatchParams), kDispatchPointers, {}, kDispatchNumbers};
static_assert(is_complete(kDispatch));

constexpr std::array kAwaitPointers = {
    MOEJIT_POINTER(AwaitParams, row_flags, kRead),
    MOEJIT_GROUP_POINTERS(AwaitParams),
};
constexpr std::array kAwaitNumbers = {MOEJIT_GROUP_NUMBERS(AwaitParams)};
constexpr ParamRecord kAwait{"await_rows", sizeof(AwaitParams), kAwaitPointers, {}, kAwaitNumbers};
static_assert(is_complete(kAwait));

}  // namespace

// CTAs that wait for peers have to be resident: there are as many as an SM can hold.
template <>
LaunchShape KernelKind<ExchangeChoicesSpec>::shape(const ExchangeChoicesSpec& spec) {
  return {.threads = spec.threads, .ctas_per_sm = 1};
}
template <>
LaunchShape KernelKind<DispatchRowsSpec>::shape(const DispatchRowsSpec& spec) {
  return {.threads = spec.threads,
          .ctas_per_sm = 1024 / spec.threads,
          .shared_bytes = std::max(16, shared_rows_bytes(spec.rows_in_shared, spec.output,
                                                         spec.columns, spec.exchange.top_k))};
}
template <>
LaunchShape KernelKind<AwaitRowsSpec>::shape(const AwaitRowsSpec& spec) {
  return {.threads = spec.threads, .ctas_per_sm = 1};
}

template <>
int64_t KernelKind<ExchangeChoicesSpec>::busy(const ExchangeChoicesSpec& spec, const CallBounds&,
                                              int64_t) {
  return pieces_of(spec.exchange, spec.parts);
}
template <>
int64_t KernelKind<DispatchRowsSpec>::busy(const DispatchRowsSpec& spec, const CallBounds&,
                                           int64_t) {
  return ctas_of(spec.exchange, chunks_of(spec.exchange));
}
template <>
int64_t KernelKind<AwaitRowsSpec>::busy(const AwaitRowsSpec&, const CallBounds&, int64_t) {
  return 1;
}

template <>
std::vector<KernelNumber> KernelKind<ExchangeChoicesSpec>::numbers(const ExchangeChoicesSpec&,
                                                                   const CallBounds&) {
  return {kRankNumber, kTimeoutNumber, kTokensNumber};
}
template <>
std::vector<KernelNumber> KernelKind<DispatchRowsSpec>::numbers(const DispatchRowsSpec&,
                                                                const CallBounds&) {
  return {kRankNumber, kTimeoutNumber, kTokensNumber};
}
template <>
std::vector<KernelNumber> KernelKind<AwaitRowsSpec>::numbers(const AwaitRowsSpec&,
                                                             const CallBounds&) {
  return {kRankNumber, kTimeoutNumber};
}

template <>
Work KernelKind<ExchangeChoicesSpec>::work(const ExchangeChoicesSpec& spec, const CallBounds&,
                                           const CallRows& rows) {
  const ExchangeShape& exchange = spec.exchange;
  const int64_t own = rows.tokens * exchange.top_k;
  // Ids and probabilities are read once and written to each rank; choices that came are read and
  // written. A peer gets places for the most tokens, whatever T is.
  const int64_t most = int64_t{exchange.max_tokens} * exchange.top_k;
  return {.min_bytes = own * (size_bytes(exchange.topk_ids) + size_bytes(spec.probs)) +
                       8 * exchange.ranks * own + 16 * slots_of(exchange) * exchange.top_k,
          .sent_bytes = 8 * (exchange.ranks - 1) * most};
}
template <>
Work KernelKind<DispatchRowsSpec>::work(const DispatchRowsSpec& spec, const CallBounds&,
                                        const CallRows& rows) {
  const auto sent =
      static_cast<int64_t>(static_cast<double>(rows.tokens) * ranks_of_token(spec.exchange));
  return {.min_bytes = rows.tokens * exchanged_row_bytes(spec.input, spec.columns) +
                       sent * exchanged_row_bytes(spec.output, spec.columns),
          .sent_bytes = sent_row_bytes(spec.exchange, rows.tokens,
                                       exchanged_row_bytes(spec.output, spec.columns))};
}
template <>
Work KernelKind<AwaitRowsSpec>::work(const AwaitRowsSpec& spec, const CallBounds&,
                                     const CallRows&) {
  return {.min_bytes = int64_t{8} * spec.exchange.ranks * chunks_of(spec.exchange)};
}

template <>
const ParamRecord& KernelKind<ExchangeChoicesSpec>::record(const ExchangeChoicesSpec&) {
  return kChoices;
}
template <>
const ParamRecord& KernelKind<DispatchRowsSpec>::record(const DispatchRowsSpec&) {
  return kDispatch;
}
template <>
const ParamRecord& KernelKind<AwaitRowsSpec>::record(const AwaitRowsSpec&) {
  return kAwait;
}

}  // namespace moejit::compiler
