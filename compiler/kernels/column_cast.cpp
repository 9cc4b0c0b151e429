// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/kernels/transpose.h"
#include "compiler/support/integer.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const ColumnCastSpec& s) {
  return fmt::format("column_cast source={} local_experts={} columns={} epsilon={:g} threads={}{}",
                     to_string(s.source), s.local_experts, s.columns, s.epsilon, s.threads,
                     threads_per_sm_text(s));
}

namespace {

constexpr int32_t kPairColumns = 64;  // that two warps hold

}  // namespace

template <>
LaunchShape KernelKind<ColumnCastSpec>::shape(const ColumnCastSpec& spec) {
  constexpr int32_t kSlotBytes = 2 * kPairColumns * 2;  // a bf16 magnitude, of each warp
  return {.threads = spec.threads, .shared_bytes = kSlotBytes * (spec.threads / 64)};
}

template <>
int64_t KernelKind<ColumnCastSpec>::busy(const ColumnCastSpec& spec, const CallBounds& bounds,
                                         int64_t tokens) {
  return busy_ctas(spec, most_gradient_columns(bounds, tokens));
}

template <>
std::vector<KernelNumber> KernelKind<ColumnCastSpec>::numbers(const ColumnCastSpec&,
                                                              const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

// Counts every real row once as input and once as output, and a scale for 128 tokens of each
// column. If rows are gathered, a token that has rows is read once.
template <>
Work KernelKind<ColumnCastSpec>::work(const ColumnCastSpec& spec, const CallBounds&,
                                      const CallRows& rows) {
  const int64_t columns = spec.columns;
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t read = gathers ? rows.routed_tokens : rows.routed;
  return {.min_bytes = 2 * read * columns + rows.routed * columns +
                       4 * columns * ceil_div(rows.routed, 128) + (gathers ? 4 * rows.routed : 0)};
}

template <>
const ParamRecord& KernelKind<ColumnCastSpec>::record(const ColumnCastSpec&) {
  return transpose_record();
}

int64_t busy_ctas(const ColumnCastSpec& spec, int64_t output_columns) {
  const int64_t halves = ceil_div(output_columns, 128) * ceil_div(spec.columns, kPairColumns);
  return ceil_div(halves, spec.threads / 64);
}

template <>
KernelText KernelKind<ColumnCastSpec>::text(const ColumnCastSpec& spec) {
  KernelText text{
      .types = "bf16_e4m3",
      .tile = "128x128",
      .summary = fmt::format("bf16 rows [{}, {}] to e4m3 columns of their experts, one "
                             "power-of-two scale for 128 tokens of a column",
                             spec.source == RowSource::kInOrder ? "P" : "T", spec.columns),
      .includes = {"transpose/column_cast.cuh"},
      .params = "TransposeParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row that is read"),
              integer_constant("kRowBytes", 2 * spec.columns, "of a row that is read"),
              float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"),
              integer_constant("kThreads", spec.threads, "per CTA, 64 for each half of a tile"),
          },
      .types_used = {{"Kernel",
                      "ColumnCast",
                      {"kGroups", "kColumns", source_type(spec.source, "Rows", "kRowBytes"),
                       "kEpsilonBits", "kThreads"}}},
  };
  set_threads_per_sm(text, spec.threads_per_sm);
  return text;
}

}  // namespace moejit::compiler
