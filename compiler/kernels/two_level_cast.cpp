// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_dims.h"
#include "compiler/kernels/block_cast.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/two_level_cast_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

int64_t two_level_pitch(int64_t rows) { return ceil_div(rows, int64_t{16}) * 16; }

std::string to_string(const TwoLevelCastSpec& s) {
  return fmt::format(
      "two_level_cast source={} result={} blocks={}{}{} local_experts={}{} columns={} threads={}",
      to_string(s.source), to_string(s.result), s.has_tiles ? "16x16" : "16",
      s.casts_rows ? " rows" : "", s.casts_columns ? " columns" : "", s.local_experts,
      s.matrix_rows > 0 ? fmt::format(" matrix_rows={}", s.matrix_rows) : std::string(), s.columns,
      s.threads);
}

namespace {

using device::TwoLevelCastParams;
using enum Access;

constexpr std::array kTwoLevelCastPointers = {
    MOEJIT_POINTER(TwoLevelCastParams, input, kRead),
    MOEJIT_POINTER(TwoLevelCastParams, row_tokens, kRead),
    MOEJIT_POINTER(TwoLevelCastParams, counts, kRead),
    MOEJIT_POINTER(TwoLevelCastParams, offs, kRead),
    MOEJIT_POINTER(TwoLevelCastParams, expert_scales, kRead),
    MOEJIT_POINTER(TwoLevelCastParams, output, kWrite),
    MOEJIT_POINTER(TwoLevelCastParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(TwoLevelCastParams, output_colwise, kWrite),
    MOEJIT_POINTER(TwoLevelCastParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(TwoLevelCastParams, skip, kRead),
    MOEJIT_CALL_POINTERS(TwoLevelCastParams),
};

constexpr std::array kTwoLevelCastNumbers = {MOEJIT_NUMBER(TwoLevelCastParams, rows),
                                             MOEJIT_NUMBER(TwoLevelCastParams, pitch),
                                             MOEJIT_NUMBER(TwoLevelCastParams, call.tokens)};

constexpr ParamRecord kTwoLevelCastRecord{
    "two_level_cast", sizeof(TwoLevelCastParams), kTwoLevelCastPointers, {}, kTwoLevelCastNumbers};
static_assert(is_complete(kTwoLevelCastRecord));

constexpr int64_t kStripeRows = 16, kStripeColumns = 128;  // that a warp holds

int64_t rows_of_matrices(const TwoLevelCastSpec& spec) {
  return int64_t{spec.local_experts} * spec.matrix_rows;
}

bool has_groups(const TwoLevelCastSpec& spec) {
  return spec.matrix_rows == 0 && spec.local_experts > 0;
}

// Returns the rows that a call has at most.
int64_t most_rows(const TwoLevelCastSpec& spec, const CallBounds& bounds, int64_t tokens) {
  if (spec.matrix_rows > 0) return rows_of_matrices(spec);
  return has_groups(spec) ? most_permuted_rows(bounds, tokens) : tokens;
}

// Returns the bytes of 16 elements that are stored, with their scale.
int64_t bytes_of_16(CastResult result) { return result == CastResult::kCodes ? 9 : 32; }

}  // namespace

template <>
LaunchShape KernelKind<TwoLevelCastSpec>::shape(const TwoLevelCastSpec& spec) {
  const int32_t threads_per_sm = !spec.casts_columns ? 1024
                                 : !spec.casts_rows  ? 512
                                 : spec.has_tiles    ? 256
                                                     : 384;
  return {.threads = spec.threads,
          .walking_threads_per_sm = spec.matrix_rows > 0 ? threads_per_sm : 0};
}

template <>
int64_t KernelKind<TwoLevelCastSpec>::busy(const TwoLevelCastSpec& spec, const CallBounds& bounds,
                                           int64_t tokens) {
  const int64_t stripes = ceil_div(most_rows(spec, bounds, tokens), kStripeRows) *
                          ceil_div(spec.columns, kStripeColumns);
  return ceil_div(stripes, spec.threads / 32);
}

template <>
std::vector<KernelNumber> KernelKind<TwoLevelCastSpec>::numbers(const TwoLevelCastSpec& spec,
                                                                const CallBounds& bounds) {
  if (spec.matrix_rows > 0)
    return {{.role = "rows", .dim = {}, .value = rows_of_matrices(spec)},
            {.role = "pitch", .dim = {}, .value = spec.matrix_rows},
            kCallTokens};
  const int64_t rows = has_groups(spec) ? bounds.max_permuted_rows : bounds.max_tokens;
  return {{.role = "rows", .dim = has_groups(spec) ? CallDim::kRows : CallDim::kTokens},
          {.role = "pitch", .dim = {}, .value = two_level_pitch(rows)},
          kCallTokens};
}

// Counts every real row once as input, and every row once for each way that it is cast. If rows are
// gathered, a token that has rows is read once.
template <>
Work KernelKind<TwoLevelCastSpec>::work(const TwoLevelCastSpec& spec, const CallBounds&,
                                        const CallRows& rows) {
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t stored = spec.matrix_rows > 0 ? rows_of_matrices(spec)
                         : has_groups(spec)   ? rows.padded
                                              : rows.tokens;
  const int64_t read = gathers ? rows.routed_tokens : has_groups(spec) ? rows.routed : stored;
  const int64_t casts = (spec.casts_rows ? 1 : 0) + (spec.casts_columns ? 1 : 0);
  return {.min_bytes = 2 * read * spec.columns +
                       casts * stored * spec.columns * bytes_of_16(spec.result) / 16 +
                       (gathers ? 4 * rows.routed : 0)};
}

template <>
const ParamRecord& KernelKind<TwoLevelCastSpec>::record(const TwoLevelCastSpec&) {
  return kTwoLevelCastRecord;
}

namespace {

std::string summary_of(const TwoLevelCastSpec& spec) {
  const std::string_view what = spec.has_tiles ? "16x16"
                                : spec.casts_rows && spec.casts_columns
                                    ? "16 columns of a row, and again for 16 rows of a column"
                                : spec.casts_rows ? "16 columns of a row"
                                                  : "16 rows of a column";
  return fmt::format("bf16 rows [{}, {}] {}, one E4M3 scale for {}, below one of {}",
                     spec.matrix_rows > 0                                     ? "matrices"
                     : spec.source == RowSource::kInOrder && has_groups(spec) ? "P"
                                                                              : "T",
                     spec.columns,
                     spec.result == CastResult::kCodes ? "to E2M1" : "rounded to values of E2M1",
                     what,
                     spec.matrix_rows > 0 ? "each matrix"
                     : has_groups(spec)   ? "each group"
                                          : "all rows");
}

}  // namespace

template <>
KernelText KernelKind<TwoLevelCastSpec>::text(const TwoLevelCastSpec& spec) {
  const bool has_codes = spec.result == CastResult::kCodes;
  return {
      .types = has_codes ? "bf16_e2m1" : "bf16_bf16",
      .tile = "16x128",
      .summary = summary_of(spec),
      .includes = {"cast/two_level_cast.cuh"},
      .params = "TwoLevelCastParams",
      .constants =
          {
              integer_constant("kGroups", has_groups(spec) ? spec.local_experts : 0,
                               has_groups(spec) ? "groups of rows" : "all rows are real"),
              integer_constant("kMatrixRows", spec.matrix_rows,
                               spec.matrix_rows > 0 ? "of each matrix" : "rows are no matrices"),
              integer_constant("kColumns", spec.columns, "of a row"),
              bool_constant("kCastsRows", spec.casts_rows,
                            spec.has_tiles ? "along a row" : "a scale for 16 columns of a row"),
              bool_constant("kCastsColumns", spec.casts_columns,
                            spec.has_tiles ? "along a column" : "a scale for 16 rows of a column"),
              integer_constant("kThreads", spec.threads, "per CTA, 32 for each stripe of 16 rows"),
          },
      .types_used = {{"Kernel",
                      "TwoLevelCast",
                      {"kGroups", "kMatrixRows", "kColumns",
                       source_type(spec.source, "Stripes", "kColumns"),
                       spec.has_tiles ? "ScalesOfTiles" : "ScalesOfLines",
                       has_codes ? "StoreTwoLevelCodes" : "StoreTwoLevelValues", "kCastsRows",
                       "kCastsColumns", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
