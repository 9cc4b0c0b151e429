// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/grouped_gemm.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/params/separate_weights.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

DType a_format(const GroupedGemmSpec& spec) {
  return spec.is_a_e5m2 ? DType::kF8E5M2 : spec.operands;
}

bool is_separate(const GroupedGemmSpec& spec) { return spec.separate_rows > 0; }

int64_t packed_tiles(const GroupedGemmSpec& spec) {
  return int64_t{spec.sections} * ceil_div(spec.section_n, 128) *
         ceil_div(spec.k, packed_tile(spec.b_packed).columns);
}

bool is_one_chain(const GroupedGemmSpec& spec) {
  if (is_b_packed(spec)) return !packed_tile(spec.b_packed).promotes;
  return spec.operands == DType::kBF16 || spec.accumulation == GemmAccumulation::kFast;
}

bool stores_result(const GroupedGemmSpec& spec) {
  return spec.epilogue != GemmEpilogue::kActivationQuantize &&
         spec.epilogue != GemmEpilogue::kActivation;
}

bool stores_activation(const GroupedGemmSpec& spec) {
  return spec.epilogue != GemmEpilogue::kStoreBf16;
}

bool quantizes_activation(const GroupedGemmSpec& spec) {
  return spec.epilogue == GemmEpilogue::kActivationQuantize ||
         spec.epilogue == GemmEpilogue::kStoreAndActivationQuantize;
}

bool may_be_clustered(const GroupedGemmSpec& spec) {
  return !spec.is_swapped && spec.b_major == Major::kK;
}

bool may_share_a(const GroupedGemmSpec& spec) {
  return spec.b_major == Major::kK && !is_b_packed(spec) && spec.ctas_per_sm == 1 &&
         (spec.wide_tiles + spec.narrow_tiles) % 2 == 0;
}

bool may_share_sm(const GroupedGemmSpec& spec) {
  return spec.is_swapped && spec.cluster_ctas == 1 && !is_b_packed(spec) &&
         !quantizes_activation(spec);
}

int32_t tile_sections(const GroupedGemmSpec& spec) { return stores_activation(spec) ? 2 : 1; }

bool is_halved(const GroupedGemmSpec& spec) {
  if (tile_sections(spec) > 1) return !spec.is_swapped;
  return !is_one_chain(spec) && spec.wide_tiles > 0 && spec.wide_columns == kWidestColumns;
}

std::string_view to_string(GemmScales scales) {
  switch (scales) {
    case GemmScales::kRowBlock: return "row_block";
    case GemmScales::kTensor: return "tensor";
    case GemmScales::kRowColumn: return "row_column";
    case GemmScales::kSection: return "section";
    case GemmScales::kNone: return "none";
  }
  return "unknown";
}

std::string_view to_string(GemmAccumulation accumulation) {
  switch (accumulation) {
    case GemmAccumulation::kFp32: return "fp32";
    case GemmAccumulation::kFast: return "fast";
  }
  return "unknown";
}

std::string_view to_string(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kStoreBf16: return "store_bf16";
    case GemmEpilogue::kActivationQuantize: return "activation_quantize";
    case GemmEpilogue::kStoreAndActivationQuantize: return "store_and_activation_quantize";
    case GemmEpilogue::kActivation: return "activation";
    case GemmEpilogue::kStoreAndActivation: return "store_and_activation";
  }
  return "unknown";
}

std::string_view to_string(GemmBias bias) {
  switch (bias) {
    case GemmBias::kNone: return "none";
    case GemmBias::kColumns: return "columns";
    case GemmBias::kColumnsTimesProb: return "columns_times_prob";
  }
  return "unknown";
}

std::string_view to_string(GemmOverlap overlap) {
  switch (overlap) {
    case GemmOverlap::kNone: return "none";
    case GemmOverlap::kBarriers: return "barriers";
    case GemmOverlap::kLoadsB: return "loads_b";
    case GemmOverlap::kFindsGroups: return "finds_groups";
  }
  return "unknown";
}

std::string_view to_string(Major major) {
  switch (major) {
    case Major::kK: return "k";
    case Major::kMn: return "mn";
  }
  return "unknown";
}

namespace {

std::string tiles_text(const GroupedGemmSpec& s) {
  if (s.is_swapped)
    return fmt::format("column_tiles={}x{} {}swapped_rows={}", s.narrow_tiles, s.narrow_columns,
                       tile_sections(s) > 1 ? "tile_sections=2 " : "", s.tile_rows);
  if (tile_sections(s) > 1)
    return fmt::format("column_tiles={}x{} tile_sections={}", s.narrow_tiles, s.narrow_columns,
                       tile_sections(s));
  return fmt::format("column_tiles={}x{}+{}x{}{}", s.wide_tiles, s.wide_columns, s.narrow_tiles,
                     s.narrow_columns, s.has_column_halves ? " column_halves" : "");
}

std::string band_text(const GroupedGemmSpec& s) {
  return s.band_tiles == kUsualBandTiles ? "" : fmt::format("band_tiles={} ", s.band_tiles);
}

std::string cluster_text(const GroupedGemmSpec& s) {
  if (s.ctas_per_sm > 1) return fmt::format("ctas_per_sm={} ", s.ctas_per_sm);
  if (s.cluster_ctas == 1) return {};
  return fmt::format("cluster_ctas={} {}", s.cluster_ctas, s.shares_a ? "shares_a=true " : "");
}

std::string accumulation_text(const GroupedGemmSpec& s) {
  if (is_one_chain(s)) return fmt::format("accumulation={}", to_string(s.accumulation));
  return fmt::format("blocks_per_promotion={}", s.blocks_per_promotion);
}

std::string bias_text(const GroupedGemmSpec& s) {
  if (s.bias == GemmBias::kNone) return {};
  return fmt::format("bias={} {}", to_string(s.bias),
                     s.has_interleaved_bias ? "interleaved_bias=true " : "");
}

}  // namespace

std::string to_string(const GroupedGemmSpec& s) {
  std::string activation;
  if (stores_activation(s)) activation = fmt::format("activation={} ", to_string(s.activation));
  if (quantizes_activation(s)) activation += fmt::format("epsilon={:g} ", s.epsilon);
  if (s.rounds_activation) activation += "rounds_activation=true ";
  if (s.is_interleaved) activation += "interleaved=true ";
  return fmt::format(
      "grouped_gemm operands={}{}{}{} scales={} epilogue={} {}{}local_experts={} sections={} "
      "section_n={} k={} {} {}stages={} {}{}{}{}{}{}",
      to_string(s.operands), s.is_a_e5m2 ? " a=F8_E5M2" : "",
      is_b_packed(s) ? fmt::format(" b={}", to_string(s.b_packed)) : "",
      is_separate(s) ? fmt::format(" separate_rows={}", s.separate_rows) : "", to_string(s.scales),
      to_string(s.epilogue), bias_text(s), s.b_major == Major::kMn ? "b_major=mn " : "",
      s.local_experts, s.sections, s.section_n, s.k, tiles_text(s), activation, s.stages,
      band_text(s), cluster_text(s), accumulation_text(s), s.zeros_rest ? " zeros_rest" : "",
      s.overlap == GemmOverlap::kNone ? "" : fmt::format(" overlap={}", to_string(s.overlap)),
      s.top_k == 0 ? "" : fmt::format(" top_k={} {}", s.top_k, to_string(s.topk_ids_dtype)));
}

GemmOverlap overlap_of(const GroupedGemmSpec& spec, bool writes_map, bool has_choices) {
  if (!spec.is_swapped) return GemmOverlap::kBarriers;
  if (!writes_map) return GemmOverlap::kLoadsB;
  return has_choices ? GemmOverlap::kFindsGroups : GemmOverlap::kBarriers;
}

namespace {

// Number of scales for each row of A, and for each group's A and B.
struct GemmScaleCounts {
  int64_t of_row = 0;
  int64_t of_group = 0;
};

GemmScaleCounts scale_counts(const GroupedGemmSpec& spec) {
  const int64_t k_blocks = ceil_div(spec.k, 128);
  switch (spec.scales) {
    case GemmScales::kRowBlock:
      return {.of_row = k_blocks,
              .of_group = spec.sections * ceil_div(spec.section_n, 128) * k_blocks};
    case GemmScales::kTensor: return {.of_group = 2};
    case GemmScales::kRowColumn:
      return {.of_row = 1, .of_group = int64_t{spec.sections} * spec.section_n};
    case GemmScales::kSection: return {.of_group = spec.sections};
    case GemmScales::kNone: break;
  }
  return {};
}

}  // namespace

namespace {

using device::GroupedGemmParams;
using SeparateGemmParams = device::GroupedGemmParamsOf<device::SeparateWeights<1>>;
using enum Access;

template <typename Params>
constexpr std::array kGroupedGemmPointers = {
    MOEJIT_POINTER(Params, a_scale_inv, kRead), MOEJIT_POINTER(Params, b_scale_inv, kRead),
    MOEJIT_POINTER(Params, probs, kRead),       MOEJIT_POINTER(Params, d, kWrite),
    MOEJIT_POINTER(Params, q, kWrite),          MOEJIT_POINTER(Params, q_scale_inv, kWrite),
    MOEJIT_POINTER(Params, counts, kRead),      MOEJIT_POINTER(Params, offs, kRead),
    MOEJIT_POINTER(Params, elapsed, kWrite),    MOEJIT_POINTER(Params, bias, kRead),
    MOEJIT_POINTER(Params, topk_ids, kRead),    MOEJIT_CALL_POINTERS(Params),
};

constexpr std::array kGroupedGemmMaps = {
    MOEJIT_POINTER(GroupedGemmParams, a_map, kRead),
    MOEJIT_POINTER(GroupedGemmParams, b_map, kRead),
    MOEJIT_POINTER(GroupedGemmParams, d_map, kWrite),
    MOEJIT_POINTER(GroupedGemmParams, q_map, kWrite),
};

constexpr std::array kSeparateGemmMaps = {
    MOEJIT_POINTER(SeparateGemmParams, a_map, kRead),
    RecordTensor{"b_map", offsetof(SeparateGemmParams, b_map.gate), kRead},
    RecordTensor{"b_up_map", offsetof(SeparateGemmParams, b_map.up), kRead},
    MOEJIT_POINTER(SeparateGemmParams, d_map, kWrite),
    MOEJIT_POINTER(SeparateGemmParams, q_map, kWrite),
};

template <typename Params>
constexpr std::array kGroupedGemmNumbers = {MOEJIT_NUMBER(Params, call.tokens)};

template <typename Params>
constexpr ParamRecord record_of(std::string_view name, std::span<const RecordTensor> maps) {
  return {name, sizeof(Params), kGroupedGemmPointers<Params>, maps, kGroupedGemmNumbers<Params>};
}

constexpr ParamRecord kGroupedGemmRecord =
    record_of<GroupedGemmParams>("grouped_gemm", kGroupedGemmMaps);
static_assert(is_complete(kGroupedGemmRecord));
constexpr ParamRecord kSeparateGemmRecord =
    record_of<SeparateGemmParams>("separate_grouped_gemm", kSeparateGemmMaps);
static_assert(is_complete(kSeparateGemmRecord));

// Returns the bytes of a stage beside operands. There are two factors for each row; where tiles are
// halved, the scale of each row and two of B. If swapped, there is a factor for each row of whole
// 64, which one warp supplies. If gated too, it is the scale of each row, beside two of B.
int32_t factor_bytes(const GroupedGemmSpec& spec) {
  if (spec.scales != GemmScales::kRowBlock) return 0;
  if (spec.is_swapped) return align_up(spec.tile_rows, 64) * 4 + (tile_sections(spec) > 1 ? 16 : 0);
  return is_halved(spec) ? spec.tile_rows * 4 + 16 : spec.tile_rows * 8;
}

}  // namespace

template <>
LaunchShape KernelKind<GroupedGemmSpec>::shape(const GroupedGemmSpec& spec) {
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  const int32_t staged = columns > kWideColumns ? columns / 2 : columns;  // at once
  // A step of B has so many rows of 128 bytes.
  const int32_t rows_b = is_b_packed(spec) ? align_up(packed_tile(spec.b_packed).bytes, 1024) / 128
                                           : tile_sections(spec) * columns;
  // Bytes of the widest staged one.
  const int32_t element = stores_result(spec) || !quantizes_activation(spec) ? 2 : 1;
  int32_t staged_row = staged * element;
  // Behind codes, the magnitudes that eight warps found, and a scale for either warpgroup.
  if (spec.is_swapped && quantizes_activation(spec)) staged_row = columns + 4 * (8 + 2);
  LaunchShape shape = gemm_shape(spec.stages, spec.tile_rows, rows_b, factor_bytes(spec),
                                 spec.tile_rows * staged_row);
  if (spec.ctas_per_sm > 1) {
    shape.threads = 2 * 128;  // one warpgroup multiplies
    shape.ctas_per_sm = spec.ctas_per_sm;
  }
  shape.cluster_ctas = spec.cluster_ctas;
  // Counts and begins of groups.
  if (spec.overlap == GemmOverlap::kFindsGroups)
    shape.shared_bytes += 4 * (2 * spec.local_experts + 1);
  shape.overlaps = spec.overlap != GemmOverlap::kNone;
  return shape;
}

template <>
int64_t KernelKind<GroupedGemmSpec>::busy(const GroupedGemmSpec& spec, const CallBounds& bounds,
                                          int64_t tokens) {
  // Swapped tiles contain their group's pad rows, so pad rows need no tiles of their own.
  const int64_t rows = spec.is_swapped ? std::min(tokens * bounds.top_k, bounds.max_permuted_rows)
                                       : most_permuted_rows(bounds, tokens);
  return busy_ctas(spec, rows, most_experts(bounds, tokens));
}

template <>
std::vector<KernelNumber> KernelKind<GroupedGemmSpec>::numbers(const GroupedGemmSpec&,
                                                               const CallBounds&) {
  return {kCallTokens};
}

template <>
Work KernelKind<GroupedGemmSpec>::work(const GroupedGemmSpec& spec, const CallBounds&,
                                       const CallRows& rows) {
  const int64_t n = int64_t{spec.sections} * spec.section_n;
  const int64_t k = spec.k;
  const int64_t element = size_bytes(spec.operands);
  const GemmScaleCounts scales = scale_counts(spec);
  // Nobody reads the weights of an expert without rows.
  const int64_t experts =
      rows.routed_experts.value_or(std::min<int64_t>(spec.local_experts, rows.routed));
  const int64_t matrix =
      is_b_packed(spec) ? packed_tiles(spec) * packed_tile(spec.b_packed).bytes : n * k * element;
  const int64_t weights = experts * (matrix + 4 * scales.of_group);
  Work total{.min_bytes = rows.routed * (k * element + 4 * scales.of_row) + weights,
             .multiply_adds = products_of(rows.routed, n * k)};
  if (stores_result(spec)) total.min_bytes += 2 * rows.padded * n;
  if (stores_activation(spec)) {
    const int64_t activated_row = quantizes_activation(spec)
                                      ? spec.section_n + 4 * ceil_div(spec.section_n, 128)
                                      : 2 * spec.section_n;
    total.min_bytes += 4 * rows.routed + rows.padded * activated_row;
  }
  return total;
}

template <>
const ParamRecord& KernelKind<GroupedGemmSpec>::record(const GroupedGemmSpec& spec) {
  return is_separate(spec) ? kSeparateGemmRecord : kGroupedGemmRecord;
}

int64_t busy_ctas(const GroupedGemmSpec& spec, int64_t rows, int64_t groups) {
  // Every group that has rows may have one tile that is not full.
  const int32_t below = spec.shares_a ? 1 : spec.cluster_ctas;
  const int64_t row_tiles = rows / (below * spec.tile_rows) + groups;
  return row_tiles * below * (spec.sections / tile_sections(spec)) *
         (spec.wide_tiles + spec.narrow_tiles);
}

}  // namespace moejit::compiler
