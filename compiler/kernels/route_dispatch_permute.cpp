// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using enum Access;
using Params = device::RouteDispatchPermuteParams;

constexpr std::array kRouteDispatchPermutePointers = {
    MOEJIT_POINTER(Params, choices.topk_ids, kRead),
    MOEJIT_POINTER(Params, choices.topk_probs, kRead),
    MOEJIT_RANK_POINTERS(Params, choices.choice_ids, kReadWrite),
    MOEJIT_RANK_POINTERS(Params, choices.choice_probs, kReadWrite),
    MOEJIT_RANK_POINTERS(Params, choices.choice_flags, kReadWrite),
    MOEJIT_POINTER(Params, choices.slot_ids, kWrite),
    MOEJIT_POINTER(Params, choices.slot_probs, kWrite),
    MOEJIT_POINTER(Params, choices.saved_tokens, kWrite),
    MOEJIT_POINTER(Params, choices.group.epoch, kReadWrite),
    MOEJIT_POINTER(Params, choices.group.status, kReadWrite),
    MOEJIT_POINTER(Params, route.topk_ids, kReadWrite),
    MOEJIT_POINTER(Params, route.counts, kReadWrite),
    MOEJIT_POINTER(Params, route.offs, kReadWrite),
    MOEJIT_POINTER(Params, route.colwise_offs, kWrite),
    MOEJIT_POINTER(Params, route.row_map, kReadWrite),
    MOEJIT_POINTER(Params, route.status, kReadWrite),
    MOEJIT_POINTER(Params, route.saved_tokens, kWrite),
    MOEJIT_POINTER(Params, dispatch.input, kRead),
    MOEJIT_POINTER(Params, dispatch.input_scale_inv, kRead),
    MOEJIT_POINTER(Params, dispatch.topk_ids, kRead),
    MOEJIT_POINTER(Params, dispatch.row_map, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.slot_probs, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.counts, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.offs, kReadWrite),
    MOEJIT_RANK_POINTERS(Params, dispatch.slots, kReadWrite),
    MOEJIT_RANK_POINTERS(Params, dispatch.slot_scales, kReadWrite),
    MOEJIT_RANK_POINTERS(Params, dispatch.row_flags, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.output, kWrite),
    MOEJIT_POINTER(Params, dispatch.output_scale_inv, kWrite),
    MOEJIT_POINTER(Params, dispatch.output_probs, kWrite),
    MOEJIT_POINTER(Params, dispatch.row_tokens, kWrite),
    MOEJIT_POINTER(Params, dispatch.kept_output, kWrite),
    MOEJIT_POINTER(Params, dispatch.kept_scale_inv, kWrite),
    MOEJIT_POINTER(Params, dispatch.saved_tokens, kRead),
    MOEJIT_POINTER(Params, dispatch.tickets, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.group.epoch, kReadWrite),
    MOEJIT_POINTER(Params, dispatch.group.status, kReadWrite),
    MOEJIT_POINTER(Params, piece_counts, kReadWrite),
    MOEJIT_POINTER(Params, route_flags, kReadWrite),
};
constexpr std::array kRouteDispatchPermuteNumbers = {
    MOEJIT_NUMBER(Params, choices.group.rank),
    MOEJIT_NUMBER(Params, choices.group.timeout_ns),
    MOEJIT_NUMBER(Params, choices.tokens),
    MOEJIT_NUMBER(Params, route.tokens),
    MOEJIT_NUMBER(Params, route.max_rows),
    MOEJIT_NUMBER(Params, dispatch.group.rank),
    MOEJIT_NUMBER(Params, dispatch.group.timeout_ns),
    MOEJIT_NUMBER(Params, dispatch.tokens)};
constexpr ParamRecord kRouteDispatchPermuteRecord{"route_dispatch_permute",
                                                  sizeof(Params),
                                                  kRouteDispatchPermutePointers,
                                                  {},
                                                  kRouteDispatchPermuteNumbers};
static_assert(is_complete(kRouteDispatchPermuteRecord));

int32_t warps_of(const RouteDispatchPermuteSpec& spec) { return spec.dispatch.threads / 32; }

// Returns where the route's histograms begin in shared memory, one over the experts for each warp
// and two more: behind what rows have.
int32_t histograms_begin(const RouteDispatchPermuteSpec& spec) {
  const int32_t rows = KernelKind<DispatchPermuteSpec>::shape(spec.dispatch).shared_bytes;
  return align_up(std::max(rows, kFirstSharedRow), 16);
}

}  // namespace

std::string to_string(const RouteDispatchPermuteSpec& s) {
  return fmt::format("route_{} parts={} splits_alignment={}{}{}", to_string(s.dispatch), s.parts,
                     s.splits_alignment, s.has_colwise_offs ? " colwise_offs" : "",
                     s.probs == DType::kBF16 ? " bf16_probs" : "");
}

template <>
LaunchShape KernelKind<RouteDispatchPermuteSpec>::shape(const RouteDispatchPermuteSpec& spec) {
  LaunchShape shape = KernelKind<DispatchPermuteSpec>::shape(spec.dispatch);
  shape.shared_bytes =
      histograms_begin(spec) + 4 * (2 + warps_of(spec)) * spec.dispatch.exchange.rank_experts;
  return shape;
}

template <>
int64_t KernelKind<RouteDispatchPermuteSpec>::busy(const RouteDispatchPermuteSpec& spec,
                                                   const CallBounds& bounds, int64_t tokens) {
  return pieces_of(spec.dispatch.exchange, spec.parts) +
         KernelKind<DispatchPermuteSpec>::busy(spec.dispatch, bounds, tokens);
}

template <>
std::vector<KernelNumber> KernelKind<RouteDispatchPermuteSpec>::numbers(
    const RouteDispatchPermuteSpec& spec, const CallBounds& bounds) {
  return {{.role = "choices.group.rank"},
          {.role = "choices.group.timeout_ns"},
          {.role = "choices.tokens", .dim = CallDim::kTokens},
          {.role = "route.tokens", .value = slots_of(spec.dispatch.exchange)},
          {.role = "route.max_rows", .value = bounds.max_permuted_rows},
          {.role = "dispatch.group.rank"},
          {.role = "dispatch.group.timeout_ns"},
          {.role = "dispatch.tokens", .dim = CallDim::kTokens}};
}

template <>
Work KernelKind<RouteDispatchPermuteSpec>::work(const RouteDispatchPermuteSpec& spec,
                                                const CallBounds& bounds, const CallRows& rows) {
  const ExchangeShape& exchange = spec.dispatch.exchange;
  Work work = KernelKind<DispatchPermuteSpec>::work(spec.dispatch, bounds, rows);
  const Work choices = KernelKind<ExchangeChoicesSpec>::work(
      {.exchange = exchange, .probs = spec.probs, .parts = spec.parts}, bounds, rows);
  // Ids are read again, and their rows written.
  work.min_bytes += choices.min_bytes + 8 * slots_of(exchange) * exchange.top_k;
  work.sent_bytes += choices.sent_bytes;
  return work;
}

template <>
const ParamRecord& KernelKind<RouteDispatchPermuteSpec>::record(const RouteDispatchPermuteSpec&) {
  return kRouteDispatchPermuteRecord;
}

template <>
KernelText KernelKind<RouteDispatchPermuteSpec>::text(const RouteDispatchPermuteSpec& spec) {
  const ExchangeShape& exchange = spec.dispatch.exchange;
  const SentRows rows{spec.dispatch.input, spec.dispatch.output, spec.dispatch.epsilon};
  KernelText text = chunked_text(exchange);
  text.types = rows.types();
  text.summary = fmt::format(
      "choices to all ranks and their routes, {} to the slots of their tokens at the ranks of "
      "their experts, and all slots' rows to their permuted rows",
      rows.summary());
  text.includes = {"exchange/route_dispatch_permute.cuh"};
  text.params = "RouteDispatchPermuteParams";
  text.constants.push_back(
      integer_constant("kParts", spec.parts, "of a rank's choices, each with a flag"));
  text.constants.push_back(integer_constant("kSplitsAlignment", spec.splits_alignment,
                                            "each expert's rows start at a multiple of this"));
  text.constants.push_back(bool_constant("kHasColwiseOffs", spec.has_colwise_offs,
                                         "starts of groups of columns, multiples of 128"));
  text.constants.push_back(integer_constant("kHistograms", histograms_begin(spec),
                                            "where the route's begin in shared memory"));
  // Each CTA that sends takes one chunk before the routing is known.
  const int32_t first_chunks =
      spec.dispatch.sender_sms * KernelKind<DispatchPermuteSpec>::shape(spec.dispatch).ctas_per_sm;
  add_dispatch(text, spec.dispatch, std::min(first_chunks, chunks_of(exchange)), "Dispatch");
  text.types_used.push_back({"Choices",
                             "ExchangeChoices",
                             {"kRanks", "kRankExperts", "kTopK", "kMaxTokens", "kParts", "kThreads",
                              id_type(exchange), prob_type(spec.probs)}});
  text.types_used.push_back({"Routing",
                             "Route",
                             {"kRankExperts", "kTopK", "kSplitsAlignment", "kThreads / 32",
                              "kHasColwiseOffs", "int32_t", "false", "kHistograms"}});
  text.types_used.push_back({"Kernel", "RouteDispatchPermute", {"Choices", "Routing", "Dispatch"}});
  return text;
}

}  // namespace moejit::compiler
