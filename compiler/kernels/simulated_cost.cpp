// SPDX-License-Identifier: Apache-2.0
#include "compiler/work.h"

#include <variant>

namespace moejit::compiler {
namespace {

// Nanoseconds of one core, measured as docs/simulator.md describes.
constexpr double kPerByte = 12.0;            // for kernels that only move and quantize
constexpr double kPerTransposedByte = 16.5;  // for kernels that write columns too
constexpr double kPerTileWeight = 47.0;  // for a weight and a tile of 128 rows in a grouped GEMM
constexpr double kPerSwappedTileWeight = 18.0;  // for a weight and a tile, if tiles are swapped;
constexpr double kPerSwappedProduct = 0.5;      // in addition, for each row of that tile
constexpr double kPerGradientProduct = 2.2;     // in wgrad, with columns padded to 128
constexpr int64_t kGradientColumns = 128;       // groups of wgrad are padded to this
constexpr int32_t kMostGemmCtas = 4;  // one for each SM of the simulator; as many run at a time

// Returns how many tiles of this many rows all experts fill; each expert has its own last tile.
double count_tiles(std::span<const int64_t> rows_of_experts, int64_t tile_rows) {
  int64_t tiles = 0;
  for (const int64_t rows : rows_of_experts) tiles += (rows + tile_rows - 1) / tile_rows;
  return static_cast<double>(tiles);
}

// A kind of kernel that is not listed takes its time for each byte that it moves.
struct CostOfSpec {
  std::span<const int64_t> rows_of_experts;
  double min_bytes;

  // Estimates a grouped GEMM, in which each tile of an expert's rows reads all of its weights.
  SimulatedCost operator()(const GroupedGemmSpec& spec) const {
    const double weights = static_cast<double>(spec.sections) * spec.section_n * spec.k;
    const double each = spec.is_swapped
                            ? kPerSwappedTileWeight + spec.tile_rows * kPerSwappedProduct
                            : kPerTileWeight * spec.tile_rows / 128;
    return {count_tiles(rows_of_experts, spec.tile_rows) * weights * each, kMostGemmCtas};
  }
  SimulatedCost operator()(const ContractionGroupedGemmSpec& spec) const {
    const double results = static_cast<double>(spec.sections) * result_rows(spec) * spec.n;
    const double columns = count_tiles(rows_of_experts, kGradientColumns) * kGradientColumns;
    return {columns * results * kPerGradientProduct, kMostGemmCtas};
  }
  SimulatedCost operator()(const TileChainSpec& spec) const {
    return {min_bytes * (spec.writes_colwise ? kPerTransposedByte : kPerByte)};
  }
  template <typename Spec>
  SimulatedCost operator()(const Spec&) const {
    return {min_bytes * kPerByte};
  }
};

}  // namespace

SimulatedCost simulated_cost(const KernelPlan& kernel, const Work& work,
                             std::span<const int64_t> rows_of_experts) {
  return std::visit(CostOfSpec{rows_of_experts, static_cast<double>(work.min_bytes)}, kernel.spec);
}

}  // namespace moejit::compiler
