// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/gated_gradient.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns_text.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/record_fields.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/gated_gradient_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

std::string expert_scale_text(const GatedGradientSpec& s) {
  if (!s.has_expert_scale) return {};
  return fmt::format(" expert_scale format={}{}", to_string(s.format),
                     is_recorded(s.amax) ? " amax=" + to_string(s.amax) : std::string());
}

}  // namespace

std::string to_string(const GatedGradientSpec& s) {
  return fmt::format(
      "gated_gradient local_experts={} columns={} activation={} epsilon={:g} "
      "threads={}{}{}{}{}{}{}",
      s.local_experts, s.columns, to_string(s.activation), s.epsilon, s.threads,
      threads_per_sm_text(s), s.stores_rows ? "" : " without_rows",
      s.tells_dprobs ? "" : " without_dprobs",
      s.transposes_gradient ? "" : " without_transposed_gradient",
      s.casts_columns ? " casts_columns" : "", expert_scale_text(s));
}

namespace {

using device::GatedGradientParams;
using enum Access;

constexpr std::array kPointers = {
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
    MOEJIT_POINTER(GatedGradientParams, amax, kReadWrite),
    MOEJIT_CALL_POINTERS(GatedGradientParams),
};

constexpr std::array kNumbers = {MOEJIT_NUMBER(GatedGradientParams, rows),
                                 MOEJIT_NUMBER(GatedGradientParams, output_columns),
                                 MOEJIT_NUMBER(GatedGradientParams, call.tokens)};

constexpr ParamRecord kRecord{
    "gated_gradient", sizeof(GatedGradientParams), kPointers, {}, kNumbers};
static_assert(is_complete(kRecord));

}  // namespace

template <>
LaunchShape KernelKind<GatedGradientSpec>::shape(const GatedGradientSpec& spec) {
  constexpr int32_t kTiles = 3;
  if (spec.casts_columns) {
    constexpr int32_t kTileBytes = 128 * 128 * 2;  // values
    constexpr int32_t kSlotBytes = 2 * 64 * 2;     // a bf16 magnitude of 64 columns, of each warp
    return {.threads = spec.threads,
            .shared_bytes = kTiles * kTileBytes + kSlotBytes * (spec.threads / 64)};
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
// partial sum of each segment. It adds operands with a scale for each tile, for each column of one,
// or for all of an expert: three, or the activation alone.
template <>
Work KernelKind<GatedGradientSpec>::work(const GatedGradientSpec& spec, const CallBounds&,
                                         const CallRows& rows) {
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
  return kRecord;
}

int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns) {
  return ceil_div(output_columns, 128) * ceil_div(spec.columns, 128);
}

}  // namespace moejit::compiler
