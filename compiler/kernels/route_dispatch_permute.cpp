// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/exchange_parts.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using enum Access;
using device::RouteDispatchPermuteParams;

constexpr std::array kRouteDispatchPermutePointers = {
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.topk_ids, kRead),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.topk_probs, kRead),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, choices.choice_ids, kReadWrite),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, choices.choice_probs, kReadWrite),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, choices.choice_flags, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.slot_ids, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.slot_probs, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.saved_tokens, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.group.epoch, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, choices.group.status, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.topk_ids, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.counts, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.offs, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.colwise_offs, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.row_map, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.status, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route.saved_tokens, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.input, kRead),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.input_scale_inv, kRead),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.topk_ids, kRead),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.row_map, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.slot_probs, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.counts, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.offs, kReadWrite),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, dispatch.slots, kReadWrite),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, dispatch.slot_scales, kReadWrite),
    MOEJIT_RANK_POINTERS(RouteDispatchPermuteParams, dispatch.row_flags, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.output, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.output_scale_inv, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.output_probs, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.row_tokens, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.kept_output, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.kept_scale_inv, kWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.saved_tokens, kRead),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.tickets, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.group.epoch, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, dispatch.group.status, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, piece_counts, kReadWrite),
    MOEJIT_POINTER(RouteDispatchPermuteParams, route_flags, kReadWrite),
};
constexpr std::array kRouteDispatchPermuteNumbers = {
    MOEJIT_NUMBER(RouteDispatchPermuteParams, choices.group.rank),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, choices.group.timeout_ns),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, choices.tokens),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, route.tokens),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, route.max_rows),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, dispatch.group.rank),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, dispatch.group.timeout_ns),
    MOEJIT_NUMBER(RouteDispatchPermuteParams, dispatch.tokens)};
constexpr ParamRecord kRouteDispatchPermuteRecord{"route_dispatch_permute",
                                                  sizeof(RouteDispatchPermuteParams),
                                                  kRouteDispatchPermutePointers,
                                                  {},
                                                  kRouteDispatchPermuteNumbers};
static_assert(is_complete(kRouteDispatchPermuteRecord));

int32_t warps_of(const RouteDispatchPermuteSpec& spec) { return spec.dispatch.threads / 32; }

// Returns where the route's histograms begin in shared memory, behind the rows. There is one over
// the experts for each warp, and two more.
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
