// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/route.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/route_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const RouteSpec& s) {
  const std::string ids = s.topk_ids == DType::kI32
                              ? std::string()
                              : fmt::format(" topk_ids={}", to_string(s.topk_ids));
  return fmt::format("route local_experts={} top_k={} splits_alignment={}{} warps={}{}{}{}",
                     s.local_experts, s.top_k, s.splits_alignment,
                     s.has_colwise_offs ? " colwise_offs" : "", s.warps, ids,
                     s.ignores_foreign ? " ignores_foreign" : "", s.overlaps ? " overlaps" : "");
}

namespace {

using device::RouteParams;
using enum Access;

// RouteMap and SplitRows take the record of Route, and read other tensors through its first
// pointer.
constexpr std::array<RecordTensor, 7> route_pointers(const char* read) {
  return {{
      {read, offsetof(RouteParams, topk_ids), kRead},
      MOEJIT_POINTER(RouteParams, counts, kWrite),
      MOEJIT_POINTER(RouteParams, offs, kWrite),
      MOEJIT_POINTER(RouteParams, colwise_offs, kWrite),
      MOEJIT_POINTER(RouteParams, row_map, kWrite),
      MOEJIT_POINTER(RouteParams, status, kReadWrite),
      MOEJIT_POINTER(RouteParams, saved_tokens, kWrite),
  }};
}

constexpr std::array kRoutePointers = route_pointers("topk_ids");
constexpr std::array kSplitRowsPointers = route_pointers("tokens_per_expert");

constexpr std::array kRouteNumbers = {MOEJIT_NUMBER(RouteParams, tokens),
                                      MOEJIT_NUMBER(RouteParams, max_rows)};

constexpr ParamRecord kRouteRecord{"route", sizeof(RouteParams), kRoutePointers, {}, kRouteNumbers};
static_assert(is_complete(kRouteRecord));

// Each warp has a histogram over the experts, and a CTA has two more.
LaunchShape shape_with_histograms(int32_t experts, int32_t warps) {
  return {.threads = 32 * warps, .shared_bytes = 4 * (2 + warps) * experts};
}

NamedConstant aligned_starts(int32_t alignment) {
  return integer_constant("kSplitsAlignment", alignment,
                          "each expert's rows start at a multiple of this");
}

std::vector<KernelNumber> route_numbers() {
  return {{.role = "tokens", .dim = CallDim::kTokens}, {.role = "max_rows", .dim = CallDim::kRows}};
}

}  // namespace

template <>
LaunchShape KernelKind<RouteSpec>::shape(const RouteSpec& spec) {
  LaunchShape shape = shape_with_histograms(spec.local_experts, spec.warps);
  shape.overlaps = spec.overlaps;
  return shape;
}

template <>
int64_t KernelKind<RouteSpec>::busy(const RouteSpec& spec, const CallBounds& bounds,
                                    int64_t tokens) {
  // At least one CTA runs, since counts and offs are written for T = 0 too. Every CTA counts all
  // ids, so beyond 32 CTAs the counting takes most of the time.
  return std::clamp<int64_t>(ceil_div(tokens * bounds.top_k, 32 * spec.warps), 1, 32);
}

template <>
std::vector<KernelNumber> KernelKind<RouteSpec>::numbers(const RouteSpec&, const CallBounds&) {
  return route_numbers();
}

template <>
Work KernelKind<RouteSpec>::work(const RouteSpec& spec, const CallBounds&, const CallRows& rows) {
  const int64_t choices = rows.tokens * spec.top_k;
  return {.min_bytes = (size_bytes(spec.topk_ids) + 4) * choices + 8 * spec.local_experts};
}

template <>
const ParamRecord& KernelKind<RouteSpec>::record(const RouteSpec&) {
  return kRouteRecord;
}

template <>
KernelText KernelKind<RouteSpec>::text(const RouteSpec& spec) {
  const bool is_i64 = spec.topk_ids == DType::kI64;
  KernelText text{
      .types = is_i64 ? "i64" : "i32",
      .tile = fmt::format("e{}k{}", spec.local_experts, spec.top_k),
      .summary =
          "top-k ids [T, K] to counts [E], aligned starts [E + 1] and the destination row of "
          "every choice [T, K]",
      .includes = {"map/route.cuh"},
      .params = "RouteParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "E"),
              integer_constant("kTopK", spec.top_k, "K"),
              aligned_starts(spec.splits_alignment),
              integer_constant("kWarps", spec.warps, "of a CTA"),
          },
      .types_used = {{"Kernel", "Route", {"kLocalExperts", "kTopK", "kSplitsAlignment", "kWarps"}}},
  };
  // Optional arguments must be given if a later one is needed.
  std::vector<std::string>& arguments = text.types_used.front().arguments;
  if (spec.has_colwise_offs) {
    text.constants.push_back(
        bool_constant("kHasColwiseOffs", true, "starts of groups of columns, multiples of 128"));
  } else if (is_i64 || spec.ignores_foreign) {
    text.constants.push_back(
        bool_constant("kHasColwiseOffs", false, "columns start where rows do, or nobody asks"));
  }
  if (spec.has_colwise_offs || is_i64 || spec.ignores_foreign)
    arguments.emplace_back("kHasColwiseOffs");
  if (is_i64 || spec.ignores_foreign) arguments.emplace_back(is_i64 ? "int64_t" : "int32_t");
  if (spec.ignores_foreign) {
    text.constants.push_back(
        bool_constant("kIgnoresForeign", true, "ids from kLocalExperts on are like -1"));
    arguments.emplace_back("kIgnoresForeign");
  }
  if (spec.overlaps) make_overlap(text);
  return text;
}

std::string to_string(const RouteMapSpec& s) {
  return fmt::format("route_map local_experts={} top_k={} splits_alignment={}{} warps={}",
                     s.local_experts, s.top_k, s.splits_alignment,
                     s.has_colwise_offs ? " colwise_offs" : "", s.warps);
}

template <>
LaunchShape KernelKind<RouteMapSpec>::shape(const RouteMapSpec& spec) {
  return shape_with_histograms(spec.local_experts, spec.warps);
}

template <>
int64_t KernelKind<RouteMapSpec>::busy(const RouteMapSpec& spec, const CallBounds&,
                                       int64_t tokens) {
  // At least one CTA writes counts and offs. Every CTA reads all of the map, so beyond 32 CTAs the
  // counting takes most of the time.
  const int64_t steps = tokens * ceil_div(spec.local_experts, 32);
  return std::clamp<int64_t>(ceil_div(steps, 8 * spec.warps), 1, 32);
}

template <>
std::vector<KernelNumber> KernelKind<RouteMapSpec>::numbers(const RouteMapSpec&,
                                                            const CallBounds&) {
  return route_numbers();
}

template <>
Work KernelKind<RouteMapSpec>::work(const RouteMapSpec& spec, const CallBounds&,
                                    const CallRows& rows) {
  const int64_t bytes_of_token = spec.local_experts + 4 * int64_t{spec.top_k};
  return {.min_bytes = rows.tokens * bytes_of_token + 8 * spec.local_experts};
}

template <>
const ParamRecord& KernelKind<RouteMapSpec>::record(const RouteMapSpec&) {
  return kRouteRecord;
}

template <>
KernelText KernelKind<RouteMapSpec>::text(const RouteMapSpec& spec) {
  return {
      .types = "u8",
      .tile = fmt::format("e{}k{}", spec.local_experts, spec.top_k),
      .summary =
          "a routing map [T, E] to counts [E], aligned starts [E + 1] and the destination row of "
          "every choice [T, K]",
      .includes = {"map/route_map.cuh"},
      .params = "RouteParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "E"),
              integer_constant("kTopK", spec.top_k, "K, the most experts of a token"),
              aligned_starts(spec.splits_alignment),
              integer_constant("kWarps", spec.warps, "of a CTA"),
              bool_constant("kHasColwiseOffs", spec.has_colwise_offs,
                            "starts of groups of columns, multiples of 128"),
          },
      .types_used = {{"Kernel",
                      "RouteMap",
                      {"kLocalExperts", "kTopK", "kSplitsAlignment", "kWarps", "kHasColwiseOffs"}}},
  };
}

std::string to_string(const SplitRowsSpec& s) {
  return fmt::format(
      "split_rows local_experts={} splits_alignment={}{}{} warps={} "
      "tokens_per_expert={}",
      s.local_experts, s.splits_alignment, s.has_row_map ? " row_map" : "",
      s.has_colwise_offs ? " colwise_offs" : "", s.warps, to_string(s.tokens_per_expert));
}

namespace {

constexpr ParamRecord kSplitRowsRecord{
    "split_rows", sizeof(RouteParams), kSplitRowsPointers, {}, kRouteNumbers};
static_assert(is_complete(kSplitRowsRecord));

}  // namespace

template <>
LaunchShape KernelKind<SplitRowsSpec>::shape(const SplitRowsSpec& spec) {
  return shape_with_histograms(spec.local_experts, spec.warps);
}

template <>
int64_t KernelKind<SplitRowsSpec>::busy(const SplitRowsSpec& spec, const CallBounds&, int64_t) {
  return spec.has_row_map ? spec.local_experts : 1;
}

template <>
std::vector<KernelNumber> KernelKind<SplitRowsSpec>::numbers(const SplitRowsSpec&,
                                                             const CallBounds&) {
  return route_numbers();
}

template <>
Work KernelKind<SplitRowsSpec>::work(const SplitRowsSpec& spec, const CallBounds&,
                                     const CallRows& rows) {
  return {.min_bytes = (size_bytes(spec.tokens_per_expert) + 8) * spec.local_experts +
                       (spec.has_row_map ? 4 * rows.tokens : 0)};
}

template <>
const ParamRecord& KernelKind<SplitRowsSpec>::record(const SplitRowsSpec&) {
  return kSplitRowsRecord;
}

template <>
KernelText KernelKind<SplitRowsSpec>::text(const SplitRowsSpec& spec) {
  const bool is_i64 = spec.tokens_per_expert == DType::kI64;
  return {
      .types = is_i64 ? "i64" : "i32",
      .tile = fmt::format("e{}", spec.local_experts),
      .summary = "rows of each expert [E] to counts [E] and aligned starts [E + 1]",
      .includes = {"map/split_rows.cuh"},
      .params = "RouteParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "E"),
              aligned_starts(spec.splits_alignment),
              integer_constant("kWarps", spec.warps, "of a CTA"),
              bool_constant("kHasRowMap", spec.has_row_map, "the destination of each row"),
              bool_constant("kHasColwiseOffs", spec.has_colwise_offs,
                            "starts of groups of columns, multiples of 128"),
          },
      .types_used = {{"Kernel",
                      "SplitRows",
                      {"kLocalExperts", "kSplitsAlignment", "kWarps", "kHasRowMap",
                       "kHasColwiseOffs", is_i64 ? "int64_t" : "int32_t"}}},
  };
}

}  // namespace moejit::compiler
