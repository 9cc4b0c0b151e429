// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_dims.h"
#include "compiler/kernels/block_cast.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/swizzle_scales_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const SwizzleScalesSpec& s) {
  return fmt::format("swizzle_scales of={} {}local_experts={} columns={}",
                     s.of_columns ? "columns" : "rows",
                     s.group == 32 ? std::string() : fmt::format("group={} ", s.group),
                     s.local_experts, s.columns);
}

namespace {

using device::SwizzleScalesParams;
using enum Access;

constexpr std::array kSwizzleScalesPointers = {
    MOEJIT_POINTER(SwizzleScalesParams, input, kRead),
    MOEJIT_POINTER(SwizzleScalesParams, counts, kRead),
    MOEJIT_POINTER(SwizzleScalesParams, offs, kRead),
    MOEJIT_POINTER(SwizzleScalesParams, output_offs, kRead),
    MOEJIT_POINTER(SwizzleScalesParams, output, kWrite),
    MOEJIT_CALL_POINTERS(SwizzleScalesParams),
};

constexpr std::array kSwizzleScalesNumbers = {
    MOEJIT_NUMBER(SwizzleScalesParams, rows), MOEJIT_NUMBER(SwizzleScalesParams, output_columns),
    MOEJIT_NUMBER(SwizzleScalesParams, pitch), MOEJIT_NUMBER(SwizzleScalesParams, call.tokens)};

constexpr ParamRecord kSwizzleScalesRecord{"swizzle_scales",
                                           sizeof(SwizzleScalesParams),
                                           kSwizzleScalesPointers,
                                           {},
                                           kSwizzleScalesNumbers};
static_assert(is_complete(kSwizzleScalesRecord));

constexpr int64_t kScaleTile = 128, kBandTiles = 8;

// Returns the tiles of 128 tokens.
int64_t tiles_of(const SwizzleScalesSpec& spec) {
  return ceil_div(spec.columns, kScaleTile) * (32 / spec.group);
}

bool is_transposed(const SwizzleScalesSpec& spec) { return spec.of_columns && spec.group == 16; }

std::string scales_type(const SwizzleScalesSpec& spec) {
  if (is_transposed(spec)) return "ScalesOfTransposedColumns<kColumns>";
  if (spec.of_columns) return "ScalesOfColumns<kColumns>";
  return spec.group == 32 ? "ScalesOfRows<kColumns>"
                          : fmt::format("ScalesOfRows<kColumns, {}>", spec.group);
}

}  // namespace

template <>
LaunchShape KernelKind<SwizzleScalesSpec>::shape(const SwizzleScalesSpec&) {
  return {.threads = 128};
}

template <>
int64_t KernelKind<SwizzleScalesSpec>::busy(const SwizzleScalesSpec& spec, const CallBounds& bounds,
                                            int64_t tokens) {
  return most_gradient_columns(bounds, tokens) / kScaleTile * ceil_div(tiles_of(spec), kBandTiles);
}

template <>
std::vector<KernelNumber> KernelKind<SwizzleScalesSpec>::numbers(const SwizzleScalesSpec&,
                                                                 const CallBounds& bounds) {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          {.role = "pitch", .dim = {}, .value = two_level_pitch(bounds.max_permuted_rows)},
          kCallTokens};
}

// Counts the scales of real rows once as input, and the scales of all rows once as output.
template <>
Work KernelKind<SwizzleScalesSpec>::work(const SwizzleScalesSpec& spec, const CallBounds&,
                                         const CallRows& rows) {
  return {.min_bytes = 4 * tiles_of(spec) * (rows.routed + rows.padded)};
}

template <>
const ParamRecord& KernelKind<SwizzleScalesSpec>::record(const SwizzleScalesSpec&) {
  return kSwizzleScalesRecord;
}

template <>
KernelText KernelKind<SwizzleScalesSpec>::text(const SwizzleScalesSpec& spec) {
  return {
      .types = spec.group == 32 ? "e8m0" : "e4m3",
      .tile = "128x4",
      .summary = fmt::format("{} scales of {} {} to tiles of 128x4 of their experts",
                             spec.group == 32 ? "E8M0" : "E4M3", spec.group,
                             spec.of_columns ? "tokens of a column" : "columns of a row"),
      .includes = {"cast/swizzle_scales.cuh"},
      .params = "SwizzleScalesParams",
      .constants = {integer_constant("kGroups", spec.local_experts, "groups of rows"),
                    integer_constant("kColumns", spec.columns, "of the rows that were cast")},
      .types_used = {{"Kernel", "SwizzleScales", {"kGroups", "kColumns", scales_type(spec)}}},
  };
}

}  // namespace moejit::compiler
