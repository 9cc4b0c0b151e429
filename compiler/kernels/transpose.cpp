// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/transpose.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/transpose_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(TransposeRule rule) {
  switch (rule) {
    case TransposeRule::kIdeal: return "ideal";
    case TransposeRule::kForkCompat: return "fork_compat";
    case TransposeRule::kKeepBytes: return "keep_bytes";
  }
  return "unknown";
}

std::string_view to_string(RowSource source) {
  switch (source) {
    case RowSource::kInOrder: return "in_order";
    case RowSource::kGathered: return "gathered";
    case RowSource::kGatheredAll: return "gathered_all";
  }
  return "unknown";
}

std::string source_type(RowSource source, std::string_view rows, std::string_view width) {
  switch (source) {
    case RowSource::kInOrder: return fmt::format("{}InOrder<{}>", rows, width);
    case RowSource::kGathered: return fmt::format("Gathered{}<{}>", rows, width);
    case RowSource::kGatheredAll: return fmt::format("Gathered{}OfAll<{}>", rows, width);
  }
  return {};
}

std::string to_string(const TransposeSpec& s) {
  return fmt::format(
      "transpose format={} rule={}{} local_experts={} columns={} counts_flushed={} "
      "threads={}{}",
      to_string(s.format), to_string(s.rule),
      s.source == RowSource::kInOrder ? std::string()
                                      : fmt::format(" source={}", to_string(s.source)),
      s.local_experts, s.columns, s.counts_flushed, s.threads, threads_per_sm_text(s));
}

namespace {

using device::TransposeParams;
using enum Access;

constexpr std::array kTransposePointers = {
    MOEJIT_POINTER(TransposeParams, input, kRead),
    MOEJIT_POINTER(TransposeParams, input_scale_inv, kRead),
    MOEJIT_POINTER(TransposeParams, row_tokens, kRead),
    MOEJIT_POINTER(TransposeParams, counts, kRead),
    MOEJIT_POINTER(TransposeParams, offs, kRead),
    MOEJIT_POINTER(TransposeParams, output_offs, kRead),
    MOEJIT_POINTER(TransposeParams, output, kWrite),
    MOEJIT_POINTER(TransposeParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(TransposeParams, flushed, kReadWrite),
    MOEJIT_POINTER(TransposeParams, status, kReadWrite),
    MOEJIT_POINTER(TransposeParams, skip, kRead),
    MOEJIT_CALL_POINTERS(TransposeParams),
};

constexpr std::array kTransposeNumbers = {MOEJIT_NUMBER(TransposeParams, rows),
                                          MOEJIT_NUMBER(TransposeParams, output_columns),
                                          MOEJIT_NUMBER(TransposeParams, call.tokens)};

constexpr ParamRecord kTransposeRecord{
    "transpose", sizeof(TransposeParams), kTransposePointers, {}, kTransposeNumbers};
static_assert(is_complete(kTransposeRecord));

}  // namespace

const ParamRecord& transpose_record() { return kTransposeRecord; }

template <>
LaunchShape KernelKind<TransposeSpec>::shape(const TransposeSpec& spec) {
  return {.threads = spec.threads, .shared_bytes = 8 * (spec.threads / 64)};
}

template <>
int64_t KernelKind<TransposeSpec>::busy(const TransposeSpec& spec, const CallBounds& bounds,
                                        int64_t tokens) {
  return busy_ctas(spec, most_gradient_columns(bounds, tokens));
}

template <>
std::vector<KernelNumber> KernelKind<TransposeSpec>::numbers(const TransposeSpec&,
                                                             const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

// Counts every real row once as input and once as output, its scales, and a scale for each tile. If
// rows are gathered, a token that has rows is read once.
template <>
Work KernelKind<TransposeSpec>::work(const TransposeSpec& spec, const CallBounds&,
                                     const CallRows& rows) {
  const int64_t columns = spec.columns;
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t read = gathers ? rows.routed_tokens : rows.routed;
  const int64_t scales = spec.rule == TransposeRule::kKeepBytes
                             ? 0
                             : ceil_div(columns, 128) * (read + ceil_div(rows.routed, 128));
  return {.min_bytes =
              (read + rows.routed) * columns + 4 * scales + (gathers ? 4 * rows.routed : 0)};
}

template <>
const ParamRecord& KernelKind<TransposeSpec>::record(const TransposeSpec&) {
  return transpose_record();
}

int64_t busy_ctas(const TransposeSpec& spec, int64_t output_columns) {
  const int64_t tiles = ceil_div(output_columns, 128) * ceil_div(spec.columns, 128);
  return ceil_div(tiles, spec.threads / 64);
}

namespace {

std::string rescale_type(const TransposeSpec& spec) {
  const std::string_view format = spec.format == DType::kF8E5M2 ? "E5m2" : "E4m3";
  switch (spec.rule) {
    case TransposeRule::kIdeal: return fmt::format("IdealRescale<{}>", format);
    case TransposeRule::kForkCompat: return fmt::format("ForkCompatRescale<{}>", format);
    case TransposeRule::kKeepBytes: return "KeepBytes";
  }
  return {};
}

std::string summary_of(const TransposeSpec& spec) {
  const std::string rows =
      fmt::format("{} rows [{}, {}]", spec.format == DType::kF8E5M2 ? "e5m2" : "e4m3",
                  spec.source == RowSource::kInOrder ? "P" : "T", spec.columns);
  if (spec.rule == TransposeRule::kKeepBytes)
    return rows + " to columns of their experts, byte for byte";
  return fmt::format(
      "{} with 1x128 scales to columns of their experts with 128x128 scales, rounded {}", rows,
      spec.rule == TransposeRule::kIdeal ? "to nearest even" : "as Transformer Engine's fork");
}

}  // namespace

template <>
KernelText KernelKind<TransposeSpec>::text(const TransposeSpec& spec) {
  const std::string_view format = spec.format == DType::kF8E5M2 ? "e5m2" : "e4m3";
  KernelText text{
      .types = fmt::format("{}_{}", format, format),
      .tile = "128x128",
      .summary = summary_of(spec),
      .includes = {"transpose/transpose.cuh"},
      .params = "TransposeParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row that is read"),
              integer_constant("kThreads", spec.threads, "per CTA, 64 for each tile"),
          },
      .types_used = {{"Kernel",
                      "Transpose",
                      {"kGroups", "kColumns", source_type(spec.source, "Rows", "kColumns"),
                       rescale_type(spec), spec.counts_flushed ? "CountFlushed" : "IgnoreFlushed",
                       "kThreads"}}},
  };
  set_threads_per_sm(text, spec.threads_per_sm);
  return text;
}

}  // namespace moejit::compiler
