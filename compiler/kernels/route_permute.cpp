// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/route_permute.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/route_permute_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const RoutePermuteSpec& s) {
  return fmt::format("route_permute most_choices={} {} {}", kMostChoicesToRoute, to_string(s.route),
                     to_string(s.rows));
}

namespace {

using device::RoutePermuteParams;
using enum Access;

#define MOEJIT_PART_POINTER(part, field, access) \
  RecordTensor { #field, offsetof(RoutePermuteParams, part.field), access }

// Both kernels' roles. What the rows would read of a route stays null, and so does what a forward
// call never has.
constexpr std::array kRoutePermutePointers = {
    MOEJIT_PART_POINTER(route, topk_ids, kRead),
    MOEJIT_PART_POINTER(route, counts, kWrite),
    MOEJIT_PART_POINTER(route, offs, kWrite),
    MOEJIT_PART_POINTER(route, colwise_offs, kWrite),
    MOEJIT_PART_POINTER(route, row_map, kWrite),
    MOEJIT_PART_POINTER(route, status, kReadWrite),
    MOEJIT_PART_POINTER(route, saved_tokens, kWrite),
    MOEJIT_PART_POINTER(rows, input, kRead),
    MOEJIT_PART_POINTER(rows, input_scale_inv, kRead),
    MOEJIT_PART_POINTER(rows, gradient, kRead),
    MOEJIT_PART_POINTER(rows, probs, kRead),
    MOEJIT_POINTER(RoutePermuteParams, rows.row_map, kRead),
    MOEJIT_POINTER(RoutePermuteParams, rows.counts, kRead),
    MOEJIT_POINTER(RoutePermuteParams, rows.offs, kRead),
    MOEJIT_PART_POINTER(rows, output, kWrite),
    MOEJIT_PART_POINTER(rows, output_scale_inv, kWrite),
    MOEJIT_PART_POINTER(rows, output_probs, kWrite),
    MOEJIT_PART_POINTER(rows, row_tokens, kWrite),
    MOEJIT_PART_POINTER(rows, output_dprobs, kWrite),
    MOEJIT_PART_POINTER(rows, kept_output, kWrite),
    MOEJIT_PART_POINTER(rows, kept_scale_inv, kWrite),
    MOEJIT_PART_POINTER(rows, dprobs_blocks, kRead),
    MOEJIT_PART_POINTER(rows, dprobs, kWrite),
    MOEJIT_PART_POINTER(rows, bias_dprobs, kRead),
    MOEJIT_PART_POINTER(rows, expert_scales, kRead),
    MOEJIT_PART_POINTER(rows, skip, kRead),
    MOEJIT_PART_POINTER(rows, amax, kReadWrite),
    MOEJIT_POINTER(RoutePermuteParams, rows.call.saved_tokens, kRead),
    MOEJIT_POINTER(RoutePermuteParams, rows.call.tokens_status, kReadWrite),
};
#undef MOEJIT_PART_POINTER
constexpr std::array kRoutePermuteNumbers = {
    MOEJIT_NUMBER(RoutePermuteParams, route.tokens),
    MOEJIT_NUMBER(RoutePermuteParams, route.max_rows),
    MOEJIT_NUMBER(RoutePermuteParams, rows.rows),
    MOEJIT_NUMBER(RoutePermuteParams, rows.call.tokens),
};
constexpr ParamRecord kRoutePermuteRecord{
    "route_permute", sizeof(RoutePermuteParams), kRoutePermutePointers, {}, kRoutePermuteNumbers};
static_assert(is_complete(kRoutePermuteRecord));

// Returns where the histograms begin in shared memory, behind what the chain has there.
int32_t histograms_begin(const RoutePermuteSpec& spec) {
  return align_up(KernelKind<RowChainSpec>::shape(spec.rows).shared_bytes, 16);
}

}  // namespace

template <>
LaunchShape KernelKind<RoutePermuteSpec>::shape(const RoutePermuteSpec& spec) {
  LaunchShape shape = KernelKind<RowChainSpec>::shape(spec.rows);
  // Behind the histograms are the destinations, and how many rows there are.
  shape.shared_bytes = histograms_begin(spec) +
                       KernelKind<RouteSpec>::shape(spec.route).shared_bytes +
                       4 * (kMostChoicesToRoute + 1);
  return shape;
}

// One CTA at least writes counts and offs, also of no tokens.
template <>
int64_t KernelKind<RoutePermuteSpec>::busy(const RoutePermuteSpec& spec, const CallBounds& bounds,
                                           int64_t tokens) {
  return std::max<int64_t>(KernelKind<RowChainSpec>::busy(spec.rows, bounds, tokens), 1);
}

template <>
std::vector<KernelNumber> KernelKind<RoutePermuteSpec>::numbers(const RoutePermuteSpec&,
                                                                const CallBounds&) {
  return {{.role = "route.tokens", .dim = CallDim::kTokens},
          {.role = "route.max_rows", .dim = CallDim::kRows},
          {.role = "rows.rows", .dim = CallDim::kTokens},
          {.role = "rows.call.tokens", .dim = CallDim::kTokens}};
}

template <>
Work KernelKind<RoutePermuteSpec>::work(const RoutePermuteSpec& spec, const CallBounds& bounds,
                                        const CallRows& rows) {
  Work work = KernelKind<RowChainSpec>::work(spec.rows, bounds, rows);
  // Nobody reads the map again.
  work.min_bytes += KernelKind<RouteSpec>::work(spec.route, bounds, rows).min_bytes -
                    4 * rows.tokens * bounds.top_k;
  return work;
}

template <>
const ParamRecord& KernelKind<RoutePermuteSpec>::record(const RoutePermuteSpec&) {
  return kRoutePermuteRecord;
}

template <>
KernelText KernelKind<RoutePermuteSpec>::text(const RoutePermuteSpec& spec) {
  KernelText text = KernelKind<RowChainSpec>::text(spec.rows);
  const bool is_i64 = spec.route.topk_ids == DType::kI64;
  text.summary = fmt::format("destinations of all choices, and {}", text.summary);
  text.includes.emplace_back("stage/route_permute.cuh");
  std::ranges::sort(text.includes);
  text.params = "RoutePermuteParams";
  text.constants.push_back(integer_constant("kSplitsAlignment", spec.route.splits_alignment,
                                            "each expert's rows start at a multiple of this"));
  text.constants.push_back(bool_constant("kHasColwiseOffs", spec.route.has_colwise_offs,
                                         "starts of groups of columns, multiples of 128"));
  text.constants.push_back(bool_constant("kIgnoresForeign", spec.route.ignores_foreign,
                                         "ids from kLocalExperts on are like -1"));
  text.constants.push_back(integer_constant("kHistograms", histograms_begin(spec),
                                            "where the route's begin in shared memory"));
  text.constants.push_back(
      integer_constant("kMostChoices", kMostChoicesToRoute, "that each CTA routes"));
  text.types_used.back().name = "Rows";
  text.types_used.push_back(
      {"Routing",
       "Route",
       {"kLocalExperts", "kTopK", "kSplitsAlignment", "kThreads / 32", "kHasColwiseOffs",
        is_i64 ? "int64_t" : "int32_t", "kIgnoresForeign", "kHistograms"}});
  text.types_used.push_back({"Kernel", "RoutePermute", {"Routing", "Rows", "kMostChoices"}});
  return text;
}

}  // namespace moejit::compiler
