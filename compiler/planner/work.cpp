// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/work.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

bool is_permuted_store(const RowChainSpec& spec) {
  return spec.store == StoreStage::kPermuted || spec.store == StoreStage::kRowsAndPermuted;
}

// Rows of the chain's input in permuted space or in token space.
bool reads_permuted_rows(const RowChainSpec& spec) { return spec.load == LoadStage::kGatedRows; }

LaunchShape launch(const RouteSpec& spec, const Layer& layer) {
  // Every CTA counts all ids: beyond this many the counting is what takes the time.
  constexpr int64_t kMostCtas = 32;
  const int64_t ids = layer.max_tokens * spec.top_k;
  return {.threads = 32 * spec.warps,
          .max_ctas = std::clamp<int64_t>(ceil_div(ids, 32 * spec.warps), 1, kMostCtas),
          .shared_bytes = 4 * (2 + spec.warps) * spec.local_experts};
}

LaunchShape launch(const RowChainSpec& spec, const Layer& layer) {
  int64_t rows = reads_permuted_rows(spec) ? layer.max_permuted_rows : layer.max_tokens;
  // Few tokens can make many pad rows. Eight to a row's share of CTAs: each CTA first does its part
  // of the tokens, and CTAs without one cost time (a CTA a step: 119 -> 132 us at T 4096, E 256).
  if (is_permuted_store(spec))
    rows = std::max(rows, (layer.max_permuted_rows - layer.max_tokens * layer.top_k) / 8);
  const int64_t segments = rows * ceil_div(spec.columns, 128);
  const int64_t segments_per_cta = int64_t{spec.threads} / 8 * spec.segments_in_flight;
  return {.threads = spec.threads,
          .max_ctas = std::max<int64_t>(1, ceil_div(segments, segments_per_cta))};
}

LaunchShape launch(const TileChainSpec& spec, const Layer& layer) {
  const int64_t tiles = int64_t{layer.local_experts} * spec.sections *
                        ceil_div(spec.section_rows, 128) * ceil_div(spec.columns, 128);
  return {.threads = spec.threads, .max_ctas = tiles, .shared_bytes = 8 * (spec.threads / 32)};
}

LaunchShape launch(const GroupedGemmSpec& spec, const Layer& layer) {
  const int64_t m_tiles = layer.max_permuted_rows / spec.tile_m + spec.local_experts;
  const int64_t n_tiles = spec.sections * ceil_div(spec.section_n, spec.tile_n);
  return {.threads = 32 * spec.warps_m * spec.warps_n,
          .max_ctas = m_tiles * n_tiles,
          .ctas_per_sm = 1,  // about 200 registers a thread
          .shared_bytes = spec.stages * (spec.tile_m + spec.tile_n) * spec.tile_k +
                          2 * 4 * spec.tile_m};  // row scales of two blocks of k
}

Work work(const RouteSpec& spec, const Layer&, const CallRows& rows) {
  return {.min_bytes = 2 * 4 * rows.tokens * spec.top_k + 8 * spec.local_experts};
}

Work work(const RowChainSpec& spec, const Layer& layer, const CallRows& rows) {
  const int64_t columns = spec.columns;
  const int64_t quantized_row = columns + 4 * ceil_div(columns, 128);
  const int64_t choices = rows.tokens * layer.top_k;
  switch (spec.load) {
    case LoadStage::kCombinedRows:
      // Every routed row once, the map, and the sums.
      return {.min_bytes = 2 * rows.routed * columns + 4 * choices + 2 * rows.tokens * columns};
    case LoadStage::kGatedRows:
      return {.min_bytes = rows.routed * (2 * 2 * columns + 4) + rows.padded * quantized_row};
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows: break;
  }
  const int64_t input_row = spec.load == LoadStage::kRows ? 2 * columns : quantized_row;
  Work total{.min_bytes = rows.tokens * input_row};
  if (spec.store != StoreStage::kPermuted) total.min_bytes += rows.tokens * quantized_row;
  if (is_permuted_store(spec))
    total.min_bytes += rows.padded * (quantized_row + 4) + 2 * 4 * choices;
  return total;
}

Work work(const TileChainSpec& spec, const Layer& layer, const CallRows&) {
  const int64_t elements =
      int64_t{layer.local_experts} * spec.sections * spec.section_rows * spec.columns;
  const int64_t scales = int64_t{layer.local_experts} * spec.sections *
                         ceil_div(spec.section_rows, 128) * ceil_div(spec.columns, 128);
  return {.min_bytes = 3 * elements + 4 * scales};
}

Work work(const GroupedGemmSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t n = int64_t{spec.sections} * spec.section_n;
  const int64_t k = spec.k;
  const int64_t k_blocks = ceil_div(k, 128);
  const int64_t weights =
      spec.local_experts * (n * k + 4 * spec.sections * ceil_div(spec.section_n, 128) * k_blocks);
  return {.min_bytes = rows.routed * (k + 4 * k_blocks) + weights + 2 * rows.padded * n,
          .multiply_adds = rows.routed * n * k};
}

}  // namespace

LaunchShape plan_launch(const KernelPlan& kernel, const Layer& layer) {
  return std::visit([&](const auto& spec) { return launch(spec, layer); }, kernel.spec);
}

Work count_work(const KernelPlan& kernel, const Layer& layer, const CallRows& rows) {
  return std::visit([&](const auto& spec) { return work(spec, layer, rows); }, kernel.spec);
}

}  // namespace moejit::compiler
