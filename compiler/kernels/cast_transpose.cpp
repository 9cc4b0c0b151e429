// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/cast_transpose.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns_text.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/record_fields.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/cast_transpose_params.h"

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

}  // namespace moejit::compiler
