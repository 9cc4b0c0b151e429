// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

constexpr int32_t kTileRows = 128, kStepBytes = 128, kBarrierBytes = 8, kSwizzleBytes = 1024;

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int32_t align_up(int32_t value, int32_t alignment) {
  return static_cast<int32_t>(ceil_div(value, alignment)) * alignment;
}

// Experts that T tokens can reach.
int64_t most_experts(const CallBounds& bounds, int64_t tokens) {
  return std::min<int64_t>(bounds.groups, tokens * bounds.top_k);
}

LaunchShape shape(const RouteSpec& spec) {
  return {.threads = 32 * spec.warps, .shared_bytes = 4 * (2 + spec.warps) * spec.local_experts};
}

LaunchShape shape(const RowChainSpec& spec) { return {.threads = spec.threads}; }

LaunchShape shape(const TileChainSpec& spec) {
  const int32_t warps = spec.threads / 32;
  if (!spec.writes_colwise) return {.threads = spec.threads, .shared_bytes = 8 * warps};
  constexpr int32_t kTileBytes = 128 * 128;  // on its way from rows to columns
  return {.threads = spec.threads, .shared_bytes = spec.tiles_per_scale * kTileBytes + 4 * warps};
}

// As GroupedGemm in templates/moejit_device/gemm adds it up; tests/compile compares.
LaunchShape gemm_shape(int32_t stages, int32_t rows, int32_t columns, int32_t factors,
                       int32_t staging) {
  constexpr int32_t kQueuedTiles = 4, kTileBytes = 48;
  const int32_t ring = stages * ((rows + columns) * kStepBytes + factors + 2 * kBarrierBytes);
  const int32_t queue = kQueuedTiles * (kTileBytes + 2 * kBarrierBytes);
  return {.threads = 3 * 128,  // a producer and two that multiply
          .ctas_per_sm = 1,
          .shared_bytes = align_up(ring, kSwizzleBytes) + staging + queue};
}

LaunchShape shape(const GroupedGemmSpec& spec) {
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  const int32_t element = stores_result(spec) ? 2 : 1;  // the widest that is staged
  // Of a step: two for each row, or one for each of up to 64.
  const int32_t factors = spec.scales != GemmScales::kRowBlock ? 0
                          : spec.is_swapped                    ? 64 * 4
                                                               : spec.tile_rows * 8;
  return gemm_shape(spec.stages, spec.tile_rows, tile_sections(spec) * columns, factors,
                    spec.tile_rows * columns * element);
}

LaunchShape shape(const ContractionGroupedGemmSpec& spec) {
  constexpr int32_t kMathWarpgroups = 2, kPanelBytes = 64 * 128;
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  const int32_t staging =
      align_up(spec.panels_staged * kPanelBytes + 2 * kBarrierBytes, kSwizzleBytes);
  // Of a step: two for the tile, or one for each row of A and B.
  const int32_t factors = spec.scales == GradientScales::kRow    ? (kTileRows + columns) * 4
                          : spec.scales == GradientScales::kTile ? 16
                                                                 : 0;
  return gemm_shape(spec.stages, kTileRows, columns, factors, kMathWarpgroups * staging);
}

LaunchShape shape(const TransposeSpec& spec) {
  return {.threads = spec.threads, .shared_bytes = 8 * (spec.threads / 64)};
}

LaunchShape shape(const GatedGradientSpec& spec) {
  constexpr int32_t kTiles = 3, kTileBytes = 128 * 128 + 4 * 128;  // codes and scales of rows
  constexpr int32_t kRowBytes = 6 * 16;  // of a thread, on their way from memory
  return {.threads = spec.threads,
          .shared_bytes = kTiles * kTileBytes + spec.threads * kRowBytes + 8 * (spec.threads / 64)};
}

LaunchShape shape(const MultiCastTransposeSpec& spec) {
  constexpr int32_t kTileBytes = 128 * 128;  // on its way from rows to columns
  return {.threads = spec.threads, .shared_bytes = kTileBytes + 4 * (spec.threads / 32)};
}

LaunchShape shape(const ColumnSumsSpec& spec) {
  constexpr int32_t kSegmentBytes = 128 * 4;  // of a partial sum
  return {.threads = spec.threads, .shared_bytes = spec.threads / 8 * kSegmentBytes};
}

LaunchShape shape(const RowDotsSpec& spec) { return {.threads = spec.threads}; }

LaunchShape shape(const UnpermuteDprobsSpec& spec) { return {.threads = spec.threads}; }

int64_t busy(const RouteSpec& spec, const CallBounds& bounds, int64_t tokens) {
  // At least one: counts and offs are written for T = 0 too. Every CTA counts all ids: beyond 32
  // the counting is what takes the time.
  return std::clamp<int64_t>(ceil_div(tokens * bounds.top_k, 32 * spec.warps), 1, 32);
}

int64_t busy(const RowChainSpec& spec, const CallBounds& bounds, int64_t tokens) {
  int64_t rows = walks_permuted_rows(spec) ? most_permuted_rows(bounds, tokens) : tokens;
  // Few tokens can make many pad rows. Eight to a row's share of CTAs: each CTA first does its part
  // of the tokens, and CTAs without one cost time (a CTA a step: 119 -> 132 us at T 4096, E 256).
  if (spec.store == StoreStage::kPermuted || spec.store == StoreStage::kRowsAndPermuted)
    rows = std::max(rows, (most_permuted_rows(bounds, tokens) - tokens * bounds.top_k) / 8);
  return busy_ctas(spec, rows);
}

int64_t busy(const TileChainSpec& spec, const CallBounds& bounds, int64_t) {
  return busy_ctas(spec, bounds.groups);
}

int64_t busy(const GroupedGemmSpec& spec, const CallBounds& bounds, int64_t tokens) {
  // Swapped tiles take their group's pad rows along.
  const int64_t rows = spec.is_swapped ? std::min(tokens * bounds.top_k, bounds.max_permuted_rows)
                                       : most_permuted_rows(bounds, tokens);
  return busy_ctas(spec, rows, most_experts(bounds, tokens));
}

int64_t busy(const ContractionGroupedGemmSpec& spec, const CallBounds&, int64_t) {
  return busy_ctas(spec);
}

int64_t busy(const TransposeSpec& spec, const CallBounds& bounds, int64_t tokens) {
  return busy_ctas(spec, most_gradient_columns(bounds, tokens));
}

int64_t busy(const GatedGradientSpec& spec, const CallBounds& bounds, int64_t tokens) {
  return busy_ctas(spec, most_gradient_columns(bounds, tokens));
}

int64_t busy(const ColumnSumsSpec& spec, const CallBounds&, int64_t) {
  return int64_t{spec.local_experts} * spec.sections * ceil_div(spec.section_columns, 128);
}

int64_t busy(const RowDotsSpec& spec, const CallBounds& bounds, int64_t tokens) {
  return ceil_div(most_permuted_rows(bounds, tokens), spec.threads / 32);
}

int64_t busy(const UnpermuteDprobsSpec& spec, const CallBounds&, int64_t tokens) {
  return ceil_div(tokens * spec.top_k, spec.threads);
}

int64_t busy(const MultiCastTransposeSpec&, const CallBounds& bounds, int64_t) {
  return bounds.list_tiles;
}

}  // namespace

LaunchShape launch_shape(const KernelSpec& spec) {
  return std::visit([](const auto& kind) { return shape(kind); }, spec);
}

int64_t busy_ctas(const KernelSpec& spec, const CallBounds& bounds, int64_t tokens) {
  return std::visit([&](const auto& kind) { return busy(kind, bounds, tokens); }, spec);
}

int64_t busy_ctas(const RowChainSpec& spec, int64_t rows) {
  const int64_t segments = rows * ceil_div(spec.columns, 128);
  return ceil_div(segments, int64_t{spec.threads} / 8 * spec.segments_in_flight);
}

int64_t busy_ctas(const TileChainSpec& spec, int64_t matrices) {
  return matrices * spec.sections * ceil_div(spec.section_rows, 128) *
         ceil_div(spec.columns, 128 * spec.tiles_per_scale);
}

int64_t busy_ctas(const GroupedGemmSpec& spec, int64_t rows, int64_t groups) {
  // Every group that has rows may have one tile that is not full.
  const int64_t row_tiles = rows / spec.tile_rows + groups;
  return row_tiles * (spec.sections / tile_sections(spec)) * (spec.wide_tiles + spec.narrow_tiles);
}

int64_t busy_ctas(const ContractionGroupedGemmSpec& spec) {
  return int64_t{spec.local_experts} * ceil_div(spec.rows, kTileRows) *
         (spec.wide_tiles + spec.narrow_tiles);
}

int64_t busy_ctas(const TransposeSpec& spec, int64_t output_columns) {
  const int64_t tiles = ceil_div(output_columns, 128) * ceil_div(spec.columns, 128);
  return ceil_div(tiles, spec.threads / 64);
}

int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns) {
  return ceil_div(output_columns, 128) * ceil_div(spec.columns, 128);
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

int64_t most_permuted_rows(const CallBounds& bounds, int64_t tokens) {
  const int64_t alignment = bounds.splits_alignment;
  const int64_t rows = tokens * bounds.top_k + most_experts(bounds, tokens) * (alignment - 1);
  // Groups begin at multiples of the alignment.
  return std::min(rows / alignment * alignment, bounds.max_permuted_rows);
}

int64_t gradient_columns(const CallBounds& bounds) {
  if (bounds.splits_alignment % 128 == 0) return bounds.max_permuted_rows;
  return most_gradient_columns(bounds, bounds.max_tokens);
}

int64_t most_gradient_columns(const CallBounds& bounds, int64_t tokens) {
  constexpr int64_t kStep = 128;
  if (bounds.splits_alignment % kStep == 0) return most_permuted_rows(bounds, tokens);
  const int64_t rows = tokens * bounds.top_k + most_experts(bounds, tokens) * (kStep - 1);
  return ceil_div(rows, kStep) * kStep;
}

bool walks_permuted_rows(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kGatedRows:
    case LoadStage::kGatedGradientRows:
    case LoadStage::kUpRows:
    case LoadStage::kUpGradientRows: return true;
    default: return spec.store == StoreStage::kGroupedRows;
  }
}

}  // namespace moejit::compiler
