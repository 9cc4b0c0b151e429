// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/gated_gradient.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/gated_gradient_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(GradientPass pass) {
  switch (pass) {
    case GradientPass::kOnly: return "only";
    case GradientPass::kAmax: return "amax";
    case GradientPass::kCast: return "cast";
  }
  return "unknown";
}

int32_t stored_columns(const GatedGradientSpec& spec) {
  return spec.pass == GradientPass::kOnly ? (spec.columns + 127) / 128 * 128 : spec.columns;
}

namespace {

std::string pass_text(const GatedGradientSpec& s) {
  if (s.pass == GradientPass::kOnly) return {};
  return fmt::format(" pass={}", to_string(s.pass));
}

std::string expert_scale_text(const GatedGradientSpec& s) {
  if (!s.has_expert_scale) return {};
  return fmt::format(" expert_scale format={}{}", to_string(s.format),
                     is_recorded(s.amax) ? " amax=" + to_string(s.amax) : std::string());
}

}  // namespace

std::string to_string(const GatedGradientSpec& s) {
  return fmt::format(
      "gated_gradient local_experts={} columns={} activation={} epsilon={:g} "
      "threads={}{}{}{}{}{}{}{}",
      s.local_experts, s.columns, to_string(s.activation), s.epsilon, s.threads,
      threads_per_sm_text(s), s.stores_rows ? "" : " without_rows",
      s.tells_dprobs ? "" : " without_dprobs",
      s.transposes_gradient ? "" : " without_transposed_gradient",
      s.casts_columns ? " casts_columns" : "", pass_text(s), expert_scale_text(s));
}

namespace {

using device::GatedGradientParams;
using enum Access;

constexpr std::array kGatedGradientPointers = {
    MOEJIT_POINTER(GatedGradientParams, input, kRead),
    MOEJIT_POINTER(GatedGradientParams, gradient, kRead),
    MOEJIT_POINTER(GatedGradientParams, probs, kRead),
    MOEJIT_POINTER(GatedGradientParams, counts, kRead),
    MOEJIT_POINTER(GatedGradientParams, offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output_offs, kRead),
    MOEJIT_POINTER(GatedGradientParams, output, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_dprobs, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_colwise, kWrite),
    MOEJIT_POINTER(GatedGradientParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(GatedGradientParams, act_colwise, kWrite),
    MOEJIT_POINTER(GatedGradientParams, act_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(GatedGradientParams, expert_scales, kRead),
    MOEJIT_POINTER(GatedGradientParams, act_expert_scales, kRead),
    MOEJIT_POINTER(GatedGradientParams, row_amax, kRead),
    MOEJIT_POINTER(GatedGradientParams, column_scale_inv, kRead),
    MOEJIT_POINTER(GatedGradientParams, act_column_scale_inv, kRead),
    MOEJIT_POINTER(GatedGradientParams, amax, kReadWrite),
    MOEJIT_CALL_POINTERS(GatedGradientParams),
};

constexpr std::array kGatedGradientNumbers = {MOEJIT_NUMBER(GatedGradientParams, rows),
                                              MOEJIT_NUMBER(GatedGradientParams, output_columns),
                                              MOEJIT_NUMBER(GatedGradientParams, call.tokens)};

constexpr ParamRecord kGatedGradientRecord{"gated_gradient",
                                           sizeof(GatedGradientParams),
                                           kGatedGradientPointers,
                                           {},
                                           kGatedGradientNumbers};
static_assert(is_complete(kGatedGradientRecord));

// Returns the shared memory of a warp's magnitudes, bf16: of 64 columns at a time, or of the
// columns of all three tiles.
int32_t warp_bytes(const GatedGradientSpec& spec) {
  switch (spec.pass) {
    case GradientPass::kOnly: return 2 * 64;
    case GradientPass::kAmax: return 2 * 3 * 128;
    case GradientPass::kCast: break;
  }
  return 0;
}

// Returns the shared memory of the expert and of the rows' magnitudes, in fp32 for each lane that
// holds a part of a row.
int32_t row_bytes(const GatedGradientSpec& spec) {
  if (spec.pass != GradientPass::kCast) return 0;
  return 16 + (spec.stores_rows ? 128 * 8 * 4 : 0);
}

// Returns the bytes of a call that finds magnitudes, or that casts with scales made from these.
Work work_of_pass(const GatedGradientSpec& spec, const CallRows& rows) {
  const int64_t columns = spec.columns, blocks = ceil_div(columns, 128);
  const int64_t operands = spec.transposes_gradient ? 3 : 1;
  const int64_t read = rows.routed * (3 * 2 * columns + 4);
  const int64_t row_amax = spec.stores_rows ? 4 * blocks * rows.routed : 0;
  if (spec.pass == GradientPass::kAmax)
    return {.min_bytes = read + row_amax + operands * 2 * columns * ceil_div(rows.routed, 128)};
  const int64_t row_bytes =
      (spec.stores_rows ? 2 * columns + 4 : 0) + (spec.tells_dprobs ? 4 * blocks : 0);
  return {.min_bytes = read + row_amax + rows.padded * row_bytes +
                       operands * columns * (rows.routed + 4 * int64_t{spec.local_experts})};
}

}  // namespace

template <>
LaunchShape KernelKind<GatedGradientSpec>::shape(const GatedGradientSpec& spec) {
  constexpr int32_t kTiles = 3;
  if (spec.casts_columns) {
    constexpr int32_t kTileBytes = 128 * 128 * 2;  // values
    return {.threads = spec.threads,
            .shared_bytes =
                kTiles * kTileBytes + row_bytes(spec) + warp_bytes(spec) * (spec.threads / 32)};
  }
  constexpr int32_t kTileBytes = 128 * 128 + 4 * 128;  // codes and scales of 128 rows
  constexpr int32_t kRowBytes = 6 * 16;                // of a thread, in flight from memory
  return {.threads = spec.threads,
          .shared_bytes = kTiles * kTileBytes + spec.threads * kRowBytes + 8 * (spec.threads / 64)};
}

template <>
int64_t KernelKind<GatedGradientSpec>::busy(const GatedGradientSpec& spec, const CallBounds& bounds,
                                            int64_t tokens) {
  return busy_ctas(spec, most_gradient_columns(bounds, tokens));
}

template <>
std::vector<KernelNumber> KernelKind<GatedGradientSpec>::numbers(const GatedGradientSpec&,
                                                                 const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

// Counts gate, up and the activation's gradient once. If wanted, it adds gradients by rows and a
// partial sum of each segment. It adds operands: three, or the activation only. These have a scale
// for each tile, for each column of a tile, or for all of an expert.
template <>
Work KernelKind<GatedGradientSpec>::work(const GatedGradientSpec& spec, const CallBounds&,
                                         const CallRows& rows) {
  if (spec.pass != GradientPass::kOnly) return work_of_pass(spec, rows);
  const int64_t columns = spec.columns, blocks = ceil_div(columns, 128);
  const int64_t row_scales = spec.has_expert_scale ? 0 : blocks;
  const int64_t row_bytes = (spec.stores_rows ? 2 * (columns + 4 * row_scales) : 0) +
                            (spec.tells_dprobs ? 4 * blocks : 0);
  const int64_t scales = spec.casts_columns ? columns : row_scales;  // of 128 tokens
  return {.min_bytes = rows.routed * (3 * 2 * columns + 4) + rows.padded * row_bytes +
                       (spec.transposes_gradient ? 3 : 1) *
                           (rows.routed * columns + 4 * scales * ceil_div(rows.routed, 128))};
}

template <>
const ParamRecord& KernelKind<GatedGradientSpec>::record(const GatedGradientSpec&) {
  return kGatedGradientRecord;
}

int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns) {
  return ceil_div(output_columns, 128) * ceil_div(spec.columns, 128);
}

}  // namespace moejit::compiler
