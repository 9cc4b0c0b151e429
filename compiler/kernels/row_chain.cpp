// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/row_chain_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

bool stores_bf16(const RowChainSpec& spec) {
  return spec.quantize == QuantizeStage::kNone || spec.quantize == QuantizeStage::k1x32Values ||
         (spec.quantize == QuantizeStage::kKeep && spec.load == LoadStage::kRows);
}

int64_t input_row_bytes(const RowChainSpec& spec) {
  if (spec.load == LoadStage::kTwoLevelRows) return spec.columns / 2;
  return int64_t{spec.columns} * (spec.load == LoadStage::kRows ? 2 : 1);
}

int64_t magnitudes_of_row(int64_t columns) { return ceil_div(columns, 512); }

bool has_row_scale(const RowChainSpec& spec) { return spec.quantize == QuantizeStage::kRow; }

int32_t row_warps(const RowChainSpec& spec) {
  return ceil_div(ceil_div(spec.columns, 128), 4 * spec.segments_in_flight);
}

RowChainSpec with_whole_rows(RowChainSpec spec, int32_t segments) {
  if (!has_row_scale(spec)) return spec;
  constexpr int32_t kMostWarps = 32, kUsualWarps = 8;
  spec.segments_in_flight = segments;
  while (row_warps(spec) > kMostWarps) spec.segments_in_flight *= 2;
  const int32_t warps = row_warps(spec);
  spec.threads = 32 * warps * std::max(kUsualWarps / warps, 1);
  return spec;
}

// A segment of rows of gate and up takes as many registers as two of plain rows.
RowChainSpec with_whole_rows(RowChainSpec spec) {
  return with_whole_rows(spec, has_activation(spec) ? 1 : 2);
}

bool has_activation(const RowChainSpec& spec) {
  return spec.transform != TransformStage::kIdentity;
}

bool has_bf16_probs(const RowChainSpec& spec) { return spec.probs == DType::kBF16; }

std::string_view to_string(LoadStage stage) {
  switch (stage) {
    case LoadStage::kRows: return "rows";
    case LoadStage::kQuantizedRows: return "quantized_rows";
    case LoadStage::kTwoLevelRows: return "two_level_rows";
    case LoadStage::kMatrixRows: return "matrix_rows";
    case LoadStage::kGatedRows: return "gated_rows";
    case LoadStage::kGatedGradientRows: return "gated_gradient_rows";
    case LoadStage::kUpRows: return "up_rows";
    case LoadStage::kUpGradientRows: return "up_gradient_rows";
    case LoadStage::kCombinedRows: return "combined_rows";
  }
  return "unknown";
}

std::string_view to_string(TransformStage stage) {
  switch (stage) {
    case TransformStage::kIdentity: return "identity";
    case TransformStage::kActivationProbability: return "activation_probability";
    case TransformStage::kActivationBackward: return "activation_backward";
  }
  return "unknown";
}

std::string_view to_string(QuantizeStage stage) {
  switch (stage) {
    case QuantizeStage::kNone: return "none";
    case QuantizeStage::kKeep: return "keep";
    case QuantizeStage::k1x128: return "1x128";
    case QuantizeStage::k1x128Pairs: return "1x128_pairs";
    case QuantizeStage::k1x128Rounded: return "1x128_rounded";
    case QuantizeStage::kExpert: return "expert";
    case QuantizeStage::kAmax: return "amax";
    case QuantizeStage::k1x32: return "1x32";
    case QuantizeStage::k1x32Values: return "1x32_values";
    case QuantizeStage::kRow: return "row";
  }
  return "unknown";
}

std::string_view to_string(StoreStage stage) {
  switch (stage) {
    case StoreStage::kRows: return "rows";
    case StoreStage::kGroupedRows: return "grouped_rows";
    case StoreStage::kGroupedGatedRows: return "grouped_gated_rows";
    case StoreStage::kGroupedUpRows: return "grouped_up_rows";
    case StoreStage::kGroupedDprobs: return "grouped_dprobs";
    case StoreStage::kPermuted: return "permuted";
    case StoreStage::kRowsAndPermuted: return "rows_and_permuted";
    case StoreStage::kRowsAndProbs: return "rows_and_probs";
  }
  return "unknown";
}

namespace {

std::string_view tokens_text(const RowChainSpec& s) {
  if (!s.moves_probs) return " without_probs";
  return s.tells_tokens ? " tells_tokens" : "";
}

}  // namespace

std::string to_string(const RowChainSpec& s) {
  const std::string dprobs = s.store == StoreStage::kRowsAndProbs
                                 ? fmt::format(" dprobs_columns={}", s.dprobs_columns)
                                 : std::string();
  const std::string burst =
      s.rows_per_burst > 0 ? fmt::format(" rows_per_burst={}", s.rows_per_burst) : std::string();
  const std::string matrices =
      s.load == LoadStage::kMatrixRows
          ? fmt::format(" sections={} section_rows={}", s.sections, s.section_rows)
          : std::string();
  const std::string pitch = s.pitch > 0 ? fmt::format(" pitch={}", s.pitch) : std::string();
  const std::string activation =
      has_activation(s) ? fmt::format("activation={} ", to_string(s.activation)) : std::string();
  return fmt::format(
      "row_chain load={} transform={} {}quantize={}{} store={} columns={} local_experts={} "
      "top_k={} epsilon={:g}{} threads={}{} segments_in_flight={}{}{}{}{}{}{}{}{}{}{}",
      to_string(s.load), to_string(s.transform), activation, to_string(s.quantize),
      s.quantize == QuantizeStage::kExpert ? fmt::format(" format={}", to_string(s.format)) : "",
      to_string(s.store), s.columns, s.local_experts, s.top_k, s.epsilon, tokens_text(s), s.threads,
      threads_per_sm_text(s), s.segments_in_flight, burst, dprobs, matrices, pitch,
      s.is_interleaved ? " interleaved" : "", s.tells_dprobs ? "" : " without_dprobs",
      s.adds_bias_dprobs ? " bias_dprobs" : "", has_bf16_probs(s) ? " bf16_probs" : "",
      is_recorded(s.amax) ? fmt::format(" amax={}", to_string(s.amax)) : "",
      s.overlaps ? " overlaps" : "");
}

namespace {

int64_t dprobs_bytes(const RowChainSpec& spec, int64_t routed, int64_t choices) {
  if (spec.store != StoreStage::kRowsAndProbs) return 0;
  const int64_t parts = spec.dprobs_columns + (spec.adds_bias_dprobs ? 1 : 0);
  return 4 * routed * parts + size_bytes(spec.probs) * choices;
}

// Returns the bytes of a stored row, or of each half of a gated row.
int64_t stored_row_bytes(const RowChainSpec& spec) {
  if (spec.store == StoreStage::kGroupedDprobs) return 0;
  if (spec.quantize == QuantizeStage::kAmax) return 4 * magnitudes_of_row(spec.columns);
  if (spec.quantize == QuantizeStage::kExpert) return spec.columns;
  if (spec.load == LoadStage::kTwoLevelRows)
    return spec.columns / 2 + 8 * ceil_div(spec.columns, 128);
  // The halves of a gated row share the scale.
  if (has_row_scale(spec))
    return spec.columns + (spec.store == StoreStage::kGroupedGatedRows ? 2 : 4);
  return stores_bf16(spec) ? 2 * spec.columns
                           : int64_t{spec.columns} + 4 * ceil_div(spec.columns, 128);
}

// Returns the bytes of a row's parts of the probability's gradient, one for each segment; 0 if they
// are not stored.
int64_t dprobs_row_bytes(const RowChainSpec& spec) {
  return spec.tells_dprobs && spec.quantize != QuantizeStage::kAmax
             ? 4 * ceil_div(spec.columns, 128)
             : 0;
}

// Returns the bytes of permuted rows, pad rows included, and of what is stored with them. These are
// the row map, probabilities in both orders, and the token of each row.
int64_t permuted_bytes(const RowChainSpec& spec, const CallRows& rows, int64_t choices) {
  if (spec.quantize == QuantizeStage::kAmax)
    return rows.routed * stored_row_bytes(spec) + 4 * choices +
           (spec.moves_probs ? size_bytes(spec.probs) * choices : 0);
  const int64_t probs = 4 * rows.padded + size_bytes(spec.probs) * choices;
  return rows.padded * stored_row_bytes(spec) + 4 * choices + (spec.moves_probs ? probs : 0) +
         (spec.tells_tokens ? 4 * rows.routed : 0);
}

// Returns the rows of all matrices.
int64_t matrix_rows(const RowChainSpec& spec) {
  return int64_t{spec.local_experts} * spec.sections * spec.section_rows;
}

using device::RowChainParams;
using enum Access;

constexpr std::array kRowChainPointers = {
    MOEJIT_POINTER(RowChainParams, input, kRead),
    MOEJIT_POINTER(RowChainParams, input_scale_inv, kRead),
    MOEJIT_POINTER(RowChainParams, gradient, kRead),
    MOEJIT_POINTER(RowChainParams, probs, kRead),
    MOEJIT_POINTER(RowChainParams, row_map, kRead),
    MOEJIT_POINTER(RowChainParams, counts, kRead),
    MOEJIT_POINTER(RowChainParams, offs, kRead),
    MOEJIT_POINTER(RowChainParams, output, kWrite),
    MOEJIT_POINTER(RowChainParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(RowChainParams, output_probs, kWrite),
    MOEJIT_POINTER(RowChainParams, row_tokens, kWrite),
    MOEJIT_POINTER(RowChainParams, output_dprobs, kWrite),
    MOEJIT_POINTER(RowChainParams, kept_output, kWrite),
    MOEJIT_POINTER(RowChainParams, kept_scale_inv, kWrite),
    MOEJIT_POINTER(RowChainParams, dprobs_blocks, kRead),
    MOEJIT_POINTER(RowChainParams, dprobs, kWrite),
    MOEJIT_POINTER(RowChainParams, bias_dprobs, kRead),
    MOEJIT_POINTER(RowChainParams, expert_scales, kRead),
    MOEJIT_POINTER(RowChainParams, skip, kRead),
    MOEJIT_POINTER(RowChainParams, amax, kReadWrite),
    MOEJIT_CALL_POINTERS(RowChainParams),
};

constexpr std::array kRowChainNumbers = {MOEJIT_NUMBER(RowChainParams, rows),
                                         MOEJIT_NUMBER(RowChainParams, call.tokens)};

constexpr ParamRecord kRowChainRecord{
    "row_chain", sizeof(RowChainParams), kRowChainPointers, {}, kRowChainNumbers};
static_assert(is_complete(kRowChainRecord));

}  // namespace

template <>
LaunchShape KernelKind<RowChainSpec>::shape(const RowChainSpec& spec) {
  // Two slots for each warp's largest magnitude.
  const bool exchanges = has_row_scale(spec) && row_warps(spec) > 1;
  // A slot for each expert's largest magnitude.
  const int32_t amax_bytes = is_recorded(spec.amax) ? 4 * spec.local_experts : 0;
  return {.threads = spec.threads,
          .shared_bytes = amax_bytes > 0 ? amax_bytes
                          : exchanges    ? 8 * (spec.threads / 32)
                                         : 0,
          .walking_threads_per_sm = threads_per_sm(spec),
          .overlaps = spec.overlaps};
}

template <>
int64_t KernelKind<RowChainSpec>::busy(const RowChainSpec& spec, const CallBounds& bounds,
                                       int64_t tokens) {
  if (spec.load == LoadStage::kMatrixRows) return busy_ctas(spec, matrix_rows(spec));
  int64_t rows = walks_permuted_rows(spec) ? most_permuted_rows(bounds, tokens) : tokens;
  // A few tokens can make many pad rows. Eight pad rows get CTAs like one row, since CTAs without a
  // part of the tokens cost time. Each CTA first does its part of the tokens. (A CTA a step: 119 ->
  // 132 us at T 4096, E 256.)
  if (spec.store == StoreStage::kPermuted || spec.store == StoreStage::kRowsAndPermuted)
    rows = std::max(rows, (most_permuted_rows(bounds, tokens) - tokens * bounds.top_k) / 8);
  return busy_ctas(spec, rows);
}

template <>
std::vector<KernelNumber> KernelKind<RowChainSpec>::numbers(const RowChainSpec& spec,
                                                            const CallBounds&) {
  if (spec.load == LoadStage::kMatrixRows)
    return {{.role = "rows", .dim = {}, .value = matrix_rows(spec)},
            {.role = kCallTokens.role, .dim = {}, .value = 0}};
  const CallDim rows = walks_permuted_rows(spec) ? CallDim::kRows : CallDim::kTokens;
  return {{.role = "rows", .dim = rows}, kCallTokens};
}

template <>
Work KernelKind<RowChainSpec>::work(const RowChainSpec& spec, const CallBounds& bounds,
                                    const CallRows& rows) {
  const int64_t columns = spec.columns;
  const int64_t row_bytes = stored_row_bytes(spec);
  const int64_t choices = rows.tokens * bounds.top_k;
  const int64_t halves = spec.quantize == QuantizeStage::kAmax ? 1 : 2;  // that are stored
  switch (spec.load) {
    case LoadStage::kCombinedRows:
      // Counts every routed row, the map and the sums once; with gradients of probabilities also
      // their blocks and sums.
      return {.min_bytes = 2 * rows.routed * columns + 4 * choices + 2 * rows.tokens * columns +
                           dprobs_bytes(spec, rows.routed, choices)};
    case LoadStage::kGatedRows:
      return {.min_bytes = rows.routed * (2 * 2 * columns + 4) + rows.padded * row_bytes};
    case LoadStage::kGatedGradientRows:
      // Counts gate, up and the gradient once, both output halves, and a partial sum of each
      // segment.
      return {.min_bytes = rows.routed * (3 * 2 * columns + 4) +
                           rows.padded * (halves * row_bytes + dprobs_row_bytes(spec))};
    case LoadStage::kUpRows:
      return {.min_bytes = rows.routed * (2 * columns + 4) + rows.padded * row_bytes};
    case LoadStage::kUpGradientRows:
      return {.min_bytes = rows.routed * (2 * 2 * columns + 4) +
                           rows.padded * (row_bytes + dprobs_row_bytes(spec))};
    case LoadStage::kMatrixRows:
      return {.min_bytes = matrix_rows(spec) * (2 * columns + row_bytes)};
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows: break;
  }
  const int64_t input_row = spec.load == LoadStage::kRows ? 2 * columns : row_bytes;
  if (spec.store == StoreStage::kGroupedRows)
    return {.min_bytes = rows.routed * input_row + rows.padded * row_bytes};
  const int64_t permuted = permuted_bytes(spec, rows, choices);
  if (spec.store == StoreStage::kPermuted)
    return {.min_bytes = rows.routed_tokens * input_row + permuted};
  return {.min_bytes = rows.tokens * (input_row + row_bytes) +
                       (spec.store == StoreStage::kRowsAndPermuted ? permuted : 0)};
}

template <>
const ParamRecord& KernelKind<RowChainSpec>::record(const RowChainSpec&) {
  return kRowChainRecord;
}

int64_t busy_ctas(const RowChainSpec& spec, int64_t rows) {
  if (has_row_scale(spec)) return ceil_div(rows, spec.threads / (32 * row_warps(spec)));
  const int64_t segments = rows * ceil_div(spec.columns, 128);
  return ceil_div(segments, int64_t{spec.threads} / 8 * spec.segments_in_flight);
}

bool walks_permuted_rows(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kGatedRows:
    case LoadStage::kGatedGradientRows:
    case LoadStage::kUpRows:
    case LoadStage::kUpGradientRows: return true;
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows:
    case LoadStage::kMatrixRows:
    case LoadStage::kCombinedRows: break;
  }
  return spec.store == StoreStage::kGroupedRows;
}

}  // namespace moejit::compiler
