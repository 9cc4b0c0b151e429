// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/block_cast.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/block_cast_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(CastResult result) {
  switch (result) {
    case CastResult::kCodes: return "codes";
    case CastResult::kValues: return "values";
  }
  return "unknown";
}

std::string to_string(const BlockCastSpec& s) {
  return fmt::format(
      "block_cast source={} result={}{}{}{} local_experts={}{} columns={} threads={}",
      to_string(s.source), to_string(s.result), s.casts_rows ? " rows" : "",
      s.casts_columns ? " columns" : "", s.starts_anywhere ? " starts_anywhere" : "",
      s.local_experts,
      s.matrix_rows > 0 ? fmt::format(" matrix_rows={}", s.matrix_rows) : std::string(), s.columns,
      s.threads);
}

namespace {

using device::BlockCastParams;
using enum Access;

constexpr std::array kBlockCastPointers = {
    MOEJIT_POINTER(BlockCastParams, input, kRead),
    MOEJIT_POINTER(BlockCastParams, row_tokens, kRead),
    MOEJIT_POINTER(BlockCastParams, counts, kRead),
    MOEJIT_POINTER(BlockCastParams, offs, kRead),
    MOEJIT_POINTER(BlockCastParams, output, kWrite),
    MOEJIT_POINTER(BlockCastParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(BlockCastParams, output_colwise, kWrite),
    MOEJIT_POINTER(BlockCastParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(BlockCastParams, skip, kRead),
    MOEJIT_CALL_POINTERS(BlockCastParams),
};

constexpr std::array kBlockCastNumbers = {MOEJIT_NUMBER(BlockCastParams, rows),
                                          MOEJIT_NUMBER(BlockCastParams, call.tokens)};

constexpr ParamRecord kBlockCastRecord{
    "block_cast", sizeof(BlockCastParams), kBlockCastPointers, {}, kBlockCastNumbers};
static_assert(is_complete(kBlockCastRecord));

constexpr int64_t kBlockRows = 32, kBlockColumns = 128;  // that a warp holds

int64_t rows_of_matrices(const BlockCastSpec& spec) {
  return int64_t{spec.local_experts} * spec.matrix_rows;
}

// Returns the bytes of an element that is stored, with its part of a scale, times 32.
int64_t bytes_of_32(CastResult result) { return result == CastResult::kCodes ? 33 : 64; }

}  // namespace

template <>
LaunchShape KernelKind<BlockCastSpec>::shape(const BlockCastSpec& spec) {
  const int32_t threads_per_sm = spec.casts_rows && spec.casts_columns ? 384 : 512;
  return {.threads = spec.threads,
          .walking_threads_per_sm = spec.matrix_rows > 0 ? threads_per_sm : 0};
}

template <>
int64_t KernelKind<BlockCastSpec>::busy(const BlockCastSpec& spec, const CallBounds& bounds,
                                        int64_t tokens) {
  const int64_t rows =
      spec.matrix_rows > 0 ? rows_of_matrices(spec) : most_permuted_rows(bounds, tokens);
  const int64_t block_rows =
      ceil_div(rows, kBlockRows) + (spec.starts_anywhere ? spec.local_experts : 0);
  return ceil_div(block_rows * ceil_div(spec.columns, kBlockColumns), spec.threads / 32);
}

template <>
std::vector<KernelNumber> KernelKind<BlockCastSpec>::numbers(const BlockCastSpec& spec,
                                                             const CallBounds&) {
  if (spec.matrix_rows > 0)
    return {{.role = "rows", .dim = {}, .value = rows_of_matrices(spec)}, kCallTokens};
  return {{.role = "rows", .dim = CallDim::kRows}, kCallTokens};
}

// Counts every real row once as input, and every row once for each way that it is cast. If rows are
// gathered, a token that has rows is read once.
template <>
Work KernelKind<BlockCastSpec>::work(const BlockCastSpec& spec, const CallBounds&,
                                     const CallRows& rows) {
  const bool has_matrices = spec.matrix_rows > 0;
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t stored = has_matrices ? rows_of_matrices(spec) : rows.padded;
  const int64_t read = has_matrices ? stored : gathers ? rows.routed_tokens : rows.routed;
  const int64_t casts = (spec.casts_rows ? 1 : 0) + (spec.casts_columns ? 1 : 0);
  return {.min_bytes = 2 * read * spec.columns +
                       casts * stored * spec.columns * bytes_of_32(spec.result) / 32 +
                       (gathers ? 4 * rows.routed : 0)};
}

template <>
const ParamRecord& KernelKind<BlockCastSpec>::record(const BlockCastSpec&) {
  return kBlockCastRecord;
}

namespace {

std::string summary_of(const BlockCastSpec& spec) {
  const std::string_view what = spec.casts_rows && spec.casts_columns
                                    ? "32 columns of a row, and again for 32 rows of a column"
                                : spec.casts_rows ? "32 columns of a row"
                                                  : "32 rows of a column";
  return fmt::format("bf16 rows [{}, {}] {}, one E8M0 scale for {}",
                     spec.matrix_rows > 0                 ? "matrices"
                     : spec.source == RowSource::kInOrder ? "P"
                                                          : "T",
                     spec.columns,
                     spec.result == CastResult::kCodes ? "to e4m3" : "rounded to values of e4m3",
                     what);
}

}  // namespace

template <>
KernelText KernelKind<BlockCastSpec>::text(const BlockCastSpec& spec) {
  const bool has_codes = spec.result == CastResult::kCodes;
  KernelText text{
      .types = has_codes ? "bf16_e4m3" : "bf16_bf16",
      .tile = "32x128",
      .summary = summary_of(spec),
      .includes = {"cast/block_cast.cuh"},
      .params = "BlockCastParams",
      .constants =
          {
              integer_constant("kGroups", spec.matrix_rows > 0 ? 0 : spec.local_experts,
                               spec.matrix_rows > 0 ? "all rows are real" : "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row"),
              bool_constant("kCastsRows", spec.casts_rows, "a scale for 32 columns of a row"),
              bool_constant("kCastsColumns", spec.casts_columns, "a scale for 32 rows of a column"),
              integer_constant("kThreads", spec.threads, "per CTA, 32 for each block of 32 rows"),
          },
      .types_used = {{"Kernel",
                      "BlockCast",
                      {"kGroups", "kColumns", source_type(spec.source, "Blocks", "kColumns"),
                       has_codes ? "StoreCodes" : "StoreValues", "kCastsRows", "kCastsColumns",
                       "kThreads"}}},
  };
  if (spec.starts_anywhere) {
    text.constants.push_back(
        bool_constant("kStartsAnywhere", true, "groups start at any row, and blocks with them"));
    text.types_used.back().arguments.emplace_back("kStartsAnywhere");
  }
  return text;
}

}  // namespace moejit::compiler
