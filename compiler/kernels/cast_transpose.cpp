// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/cast_transpose.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/cast_transpose_params.h"
#include "moejit_device/params/multi_cast_transpose_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const CastTransposeSpec& s) {
  return fmt::format("cast_transpose format={} local_experts={} columns={}{}{}{} threads={}",
                     to_string(s.format), s.local_experts, s.columns,
                     s.zeroes_rows ? " zeroes_rows" : "", s.stores_rows ? "" : " without_rows",
                     is_recorded(s.amax) ? " amax=" + to_string(s.amax) : std::string(), s.threads);
}

namespace {

using device::CastTransposeParams;
using enum Access;

constexpr std::array kCastTransposePointers = {
    MOEJIT_POINTER(CastTransposeParams, input, kRead),
    MOEJIT_POINTER(CastTransposeParams, row_tokens, kRead),
    MOEJIT_POINTER(CastTransposeParams, counts, kRead),
    MOEJIT_POINTER(CastTransposeParams, offs, kRead),
    MOEJIT_POINTER(CastTransposeParams, output_offs, kRead),
    MOEJIT_POINTER(CastTransposeParams, expert_scales, kRead),
    MOEJIT_POINTER(CastTransposeParams, output, kWrite),
    MOEJIT_POINTER(CastTransposeParams, output_colwise, kWrite),
    MOEJIT_POINTER(CastTransposeParams, amax, kReadWrite),
    MOEJIT_CALL_POINTERS(CastTransposeParams),
};

constexpr std::array kCastTransposeNumbers = {MOEJIT_NUMBER(CastTransposeParams, rows),
                                              MOEJIT_NUMBER(CastTransposeParams, output_columns),
                                              MOEJIT_NUMBER(CastTransposeParams, call.tokens)};

constexpr ParamRecord kCastTransposeRecord{"cast_transpose",
                                           sizeof(CastTransposeParams),
                                           kCastTransposePointers,
                                           {},
                                           kCastTransposeNumbers};
static_assert(is_complete(kCastTransposeRecord));

constexpr int64_t kTile = 128;  // rows and columns

}  // namespace

template <>
LaunchShape KernelKind<CastTransposeSpec>::shape(const CastTransposeSpec& spec) {
  return {.threads = spec.threads,
          .shared_bytes = static_cast<int32_t>(kTile * kTile) + 4 * (spec.threads / 32)};
}

template <>
int64_t KernelKind<CastTransposeSpec>::busy(const CastTransposeSpec& spec, const CallBounds& bounds,
                                            int64_t tokens) {
  return ceil_div(most_gradient_columns(bounds, tokens), kTile) * ceil_div(spec.columns, kTile);
}

template <>
std::vector<KernelNumber> KernelKind<CastTransposeSpec>::numbers(const CastTransposeSpec&,
                                                                 const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

// Counts a token that has rows once as input, and every row once by columns and, pad rows included,
// once by rows, with its token.
template <>
Work KernelKind<CastTransposeSpec>::work(const CastTransposeSpec& spec, const CallBounds&,
                                         const CallRows& rows) {
  return {.min_bytes = int64_t{spec.columns} * (2 * rows.routed_tokens + rows.routed +
                                                (spec.stores_rows ? rows.padded : 0)) +
                       4 * rows.routed};
}

template <>
const ParamRecord& KernelKind<CastTransposeSpec>::record(const CastTransposeSpec&) {
  return kCastTransposeRecord;
}

template <>
KernelText KernelKind<CastTransposeSpec>::text(const CastTransposeSpec& spec) {
  const bool is_e5m2 = spec.format == DType::kF8E5M2;
  KernelText text{
      .types = is_e5m2 ? "bf16_e5m2" : "bf16_e4m3",
      .tile = "128x128",
      .summary = fmt::format("bf16 rows [T, {}], with known scales of experts, to {}{} columns of "
                             "their experts",
                             spec.columns, spec.stores_rows ? "permuted rows and to " : "",
                             is_e5m2 ? "e5m2" : "e4m3"),
      .includes = {"cast/cast_transpose.cuh"},
      .params = "CastTransposeParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row"),
              bool_constant("kZeroes", spec.zeroes_rows, "rows that were permuted as zeros"),
              bool_constant("kStoresRows", spec.stores_rows, "and not columns alone"),
              integer_constant("kThreads", spec.threads, "per CTA, which holds a tile"),
          },
      .types_used =
          {{"Kernel",
            "CastTranspose",
            {"kLocalExperts", "kColumns", is_e5m2 ? "E5m2" : "E4m3", "kZeroes", "kStoresRows",
             is_recorded(spec.amax) ? "ColumnOfExpert<kAmaxStride, kAmaxFirst>" : "NoColumn",
             "kThreads"}}},
  };
  if (is_recorded(spec.amax)) add_amax_columns(text, spec.amax);
  return text;
}

std::string to_string(const MultiCastTransposeSpec& s) {
  return fmt::format("multi_cast_transpose input={} output={} threads={}", to_string(s.input),
                     to_string(s.output), s.threads);
}

namespace {

using device::MultiCastTransposeParams;

constexpr std::array kMultiCastTransposePointers = {
    MOEJIT_POINTER(MultiCastTransposeParams, tensors, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, tile_ends, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, skip, kRead),
};

constexpr std::array kMultiCastTransposeNumbers = {MOEJIT_NUMBER(MultiCastTransposeParams, count)};

constexpr ParamRecord kMultiCastTransposeRecord{"multi_cast_transpose",
                                                sizeof(MultiCastTransposeParams),
                                                kMultiCastTransposePointers,
                                                {},
                                                kMultiCastTransposeNumbers};
static_assert(is_complete(kMultiCastTransposeRecord));

}  // namespace

template <>
LaunchShape KernelKind<MultiCastTransposeSpec>::shape(const MultiCastTransposeSpec& spec) {
  constexpr int32_t kTileBytes = 128 * 128;  // bytes of a tile on its way from rows to columns
  return {.threads = spec.threads, .shared_bytes = kTileBytes + 4 * (spec.threads / 32)};
}

template <>
int64_t KernelKind<MultiCastTransposeSpec>::busy(const MultiCastTransposeSpec&,
                                                 const CallBounds& bounds, int64_t) {
  return bounds.list_tiles;
}

template <>
std::vector<KernelNumber> KernelKind<MultiCastTransposeSpec>::numbers(const MultiCastTransposeSpec&,
                                                                      const CallBounds& bounds) {
  return {{.role = "count", .dim = {}, .value = bounds.list_length}};
}

// Counts every element once, and its output byte in both orientations.
template <>
Work KernelKind<MultiCastTransposeSpec>::work(const MultiCastTransposeSpec& spec,
                                              const CallBounds& bounds, const CallRows&) {
  return {.min_bytes = bounds.list_elements * (size_bytes(spec.input) + 2)};
}

template <>
const ParamRecord& KernelKind<MultiCastTransposeSpec>::record(const MultiCastTransposeSpec&) {
  return kMultiCastTransposeRecord;
}

std::vector<int64_t> cast_transpose_tile_ends(std::span<const MatrixSize> sizes) {
  std::vector<int64_t> ends;
  int64_t tiles = 0;
  for (const MatrixSize& size : sizes) {
    tiles += ceil_div(size.rows, 128) * ceil_div(size.columns, 128);
    ends.push_back(tiles);
  }
  return ends;
}

template <>
KernelText KernelKind<MultiCastTransposeSpec>::text(const MultiCastTransposeSpec& spec) {
  const bool is_f32 = spec.input == DType::kF32;
  const bool is_e5m2 = spec.output == DType::kF8E5M2;
  const std::string_view input = is_f32 ? "f32" : "bf16";
  const std::string_view output = is_e5m2 ? "e5m2" : "e4m3";
  return {
      .types = fmt::format("{}_{}", input, output),
      .tile = "128x128",
      .summary =
          fmt::format("a list of {} tensors, each with a scale, to {} and its transpose, and "
                      "the largest magnitude of each",
                      input, output),
      .includes = {"cast/multi_cast_transpose.cuh"},
      .params = "MultiCastTransposeParams",
      .constants = {integer_constant("kThreads", spec.threads, "per CTA, which holds a tile")},
      .types_used = {{"Kernel",
                      "MultiCastTranspose",
                      {is_f32 ? "F32Input" : "Bf16Input", is_e5m2 ? "E5m2" : "E4m3", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
