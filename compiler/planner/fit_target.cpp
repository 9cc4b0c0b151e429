// SPDX-License-Identifier: Apache-2.0
// Specs are chosen for Hopper. Here they are made to fit other targets.
#include "compiler/dtype.h"
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/support/integer.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

// Columns of a tile where warps multiply by mma.sync. With more of them, operands that are unpacked
// to f16 leave no registers for the sums, and small SMs have no room for two stages. Where warps
// trade no registers, sums of large tiles fit beside operands in bf16, if the SM has one CTA.
constexpr int32_t kLargeColumns = 128, kSmallColumns = 64;
constexpr int32_t kLargeSharedBytes = 160 * 1024;

int32_t mma_columns(const Target& target, DType operands, int32_t ctas_per_sm) {
  if (trades_registers(target)) return kLargeColumns;
  const bool is_large = target.shared_memory_bytes >= kLargeSharedBytes && ctas_per_sm == 1;
  return is_large && operands == DType::kBF16 ? kLargeColumns : kSmallColumns;
}

// Return whether warps have 32 rows and half of a tile's columns, so that they read less shared
// memory, and unpack less. Halves are whole boxes of 64 columns.
bool takes_column_halves(const GroupedGemmSpec& spec) {
  return spec.narrow_columns == kLargeColumns;
}
// Scales of rows would have to reach both blocks of 64 rows of the sums.
bool takes_column_halves(const ContractionGroupedGemmSpec& spec) {
  const bool has_row_scales =
      spec.scales == GradientScales::kRow || spec.scales == GradientScales::kRowColumn;
  return spec.narrow_columns == kLargeColumns && !has_row_scales;
}

// Returns the most rows of a tile. Sums need registers that unpacking takes, too: most of them
// where integers make FP8 of 4-bit codes, and f16 of that.
int32_t most_tile_rows(const GroupedGemmSpec& spec, const Target& target) {
  constexpr int32_t kMost = 128, kMostUnpacked = 64, kMostByIntegers = 32;
  const bool is_fp8 = spec.operands != DType::kBF16;
  if (is_b_packed(spec))
    return is_fp8 && !target.features.has_fp8_conversions ? kMostByIntegers : kMostUnpacked;
  return spec.is_swapped && is_fp8 && !trades_registers(target) ? kMostUnpacked : kMost;
}

// Returns the dynamic shared memory that a CTA may have, of those that share an SM.
int64_t shared_bytes_of_cta(const Target& target, int32_t ctas_per_sm) {
  constexpr int32_t kReserved = 1024;  // that each CTA takes beside it
  return std::min(target.shared_memory_bytes, target.shared_memory_of_sm / ctas_per_sm - kReserved);
}

// Takes as many stages as fit, 2 at least.
template <typename Spec>
void fit_stages(Spec& spec, int32_t most, int64_t bytes) {
  spec.stages = most;
  while (spec.stages > 2 && launch_shape(spec).shared_bytes > bytes) --spec.stages;
}

template <typename Spec>
void cover(Spec& spec, int64_t columns, int32_t tile_columns) {
  spec.cluster_ctas = 1;
  spec.wide_columns = Spec().wide_columns;
  spec.wide_tiles = 0;
  spec.narrow_columns = tile_columns;
  spec.narrow_tiles = static_cast<int32_t>(ceil_div(columns, spec.narrow_columns));
}

}  // namespace

RowChainSpec fitted(RowChainSpec spec, const Target& target) {
  if (!target.features.has_bulk_copies) spec.rows_per_burst = 0;  // L2 is asked by a bulk prefetch
  return spec;
}

GatedGradientSpec fitted(GatedGradientSpec spec, const Target& target) {
  // Each warp has a part of shared memory of its own.
  while (spec.threads > 64 && launch_shape(spec).shared_bytes > target.shared_memory_bytes)
    spec.threads /= 2;
  return spec;
}

GroupedGemmSpec fitted(GroupedGemmSpec spec, const Target& target) {
  constexpr int32_t kMostStages = 6;
  if (target.features.has_wgmma) return spec;
  spec.shares_a = false;
  spec.cluster_ctas = 1;
  if (!spec.is_swapped && tile_sections(spec) == 1) {
    cover(spec, spec.section_n, mma_columns(target, spec.operands, spec.ctas_per_sm));
    spec.has_column_halves = takes_column_halves(spec);
    spec.stages = std::max(spec.stages, kMostStages);
  }
  spec.tile_rows = std::min(spec.tile_rows, most_tile_rows(spec, target));
  fit_stages(spec, spec.stages, shared_bytes_of_cta(target, spec.ctas_per_sm));
  return spec;
}

ContractionGroupedGemmSpec fitted(ContractionGroupedGemmSpec spec, const Target& target) {
  constexpr int32_t kPanelBytes = 128;  // of a row
  if (target.features.has_wgmma) return spec;
  cover(spec, spec.n, mma_columns(target, operands_of(spec), 1));
  spec.has_column_halves = takes_column_halves(spec);
  // The kernel asks of wide tiles, too, that halves are whole panels.
  if (spec.has_column_halves) spec.wide_columns = kWidestColumns;
  const int32_t panels =
      static_cast<int32_t>(spec.narrow_columns * size_bytes(dtype_of(spec.output))) / kPanelBytes;
  spec.panels_loaded = std::min(spec.panels_loaded, panels);
  spec.panels_staged = std::max(2, std::min(spec.panels_staged, panels));
  fit_stages(spec, spec.stages, shared_bytes_of_cta(target, 1));
  return spec;
}

}  // namespace moejit::compiler
