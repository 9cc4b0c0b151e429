// SPDX-License-Identifier: Apache-2.0
#include "cli/execution/simulated_time.h"

#include "cli/tensors/routing_tensors.h"
#include "compiler/compiler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

namespace moejit::cli {
namespace {

using compiler::CallRows;
using compiler::Layer;

// Nanoseconds of one core, measured as docs/simulator.md describes.
constexpr double kPerRandomWeight = 18.5;
constexpr double kPerByte = 12.0;            // for kernels that only move and quantize
constexpr double kPerTransposedByte = 16.5;  // for kernels that write columns too
constexpr double kPerTileWeight = 47.0;  // for a weight and a tile of 128 rows in a grouped GEMM
constexpr double kPerSwappedTileWeight = 18.0;  // for a weight and a tile, if tiles are swapped;
constexpr double kPerSwappedProduct = 0.5;      // in addition, for each row of that tile
constexpr double kPerGradientProduct = 2.2;     // in wgrad, with columns padded to 128
constexpr double kPerCheckedWeight = 10.5;      // the CPU reference quantizes it
constexpr double kPerCheckedProduct = 5.7;
constexpr double kMostCheckedProducts = 0x1p33;  // for a GEMM; larger ones are sampled
constexpr int64_t kGradientColumns = 128;        // groups of wgrad are padded to this
constexpr int32_t kMostGemmCtas = 4;  // one for each SM of the simulator; as many run at a time

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The rows of each local expert, and their sums.
struct Routing {
  std::vector<int64_t> counts;
  CallRows rows;

  // Returns how many tiles of this many rows all experts fill; each expert has its own last tile.
  double tiles(int64_t tile_rows) const {
    double sum = 0.0;
    for (const int64_t count : counts)
      sum += static_cast<double>(round_up(count, tile_rows) / tile_rows);
    return sum;
  }
};

Routing count_rows(const Layer& layer, const HostTensor& topk_ids) {
  const int64_t tokens = topk_ids.shape.front();
  Routing routing{std::vector<int64_t>(static_cast<size_t>(layer.local_experts)),
                  {.tokens = tokens, .routed_tokens = tokens, .routed_experts = 0}};
  for (const int64_t id : expert_ids(topk_ids))
    if (id >= 0 && id < layer.local_experts) ++routing.counts[static_cast<size_t>(id)];
  for (const int64_t count : routing.counts) {
    routing.rows.routed += count;
    if (count > 0) ++*routing.rows.routed_experts;
    routing.rows.padded += round_up(count, layer.splits_alignment);
  }
  return routing;
}

// Nanoseconds of a kernel on one core, and how many CTAs share its work.
struct KernelCost {
  double nanoseconds = 0.0;
  int32_t most_ctas = INT32_MAX;
};

struct CostOfSpec {
  const Routing& routing;
  int64_t min_bytes;

  // Estimates a grouped GEMM, in which each tile of an expert's rows reads all of its weights.
  KernelCost operator()(const compiler::GroupedGemmSpec& spec) const {
    const double weights = static_cast<double>(spec.sections) * spec.section_n * spec.k;
    const double each = spec.is_swapped
                            ? kPerSwappedTileWeight + spec.tile_rows * kPerSwappedProduct
                            : kPerTileWeight * spec.tile_rows / 128;
    return {routing.tiles(spec.tile_rows) * weights * each, kMostGemmCtas};
  }
  KernelCost operator()(const compiler::ContractionGroupedGemmSpec& spec) const {
    const double results =
        static_cast<double>(spec.sections) * compiler::result_rows(spec) * spec.n;
    const double columns = routing.tiles(kGradientColumns) * kGradientColumns;
    return {columns * results * kPerGradientProduct, kMostGemmCtas};
  }
  KernelCost operator()(const compiler::TileChainSpec& spec) const {
    return {static_cast<double>(min_bytes) * (spec.writes_colwise ? kPerTransposedByte : kPerByte)};
  }
  template <typename Spec>
  KernelCost operator()(const Spec&) const {
    return {static_cast<double>(min_bytes) * kPerByte};
  }
};

double weight_count(const Layer& layer) {
  return static_cast<double>(compiler::w1_sections(layer) + 1) * layer.local_experts *
         layer.intermediate * layer.hidden;
}

}  // namespace

double SimulatedTime::total() const {
  return std::accumulate(kernels.begin(), kernels.end(), random_data + check);
}

SimulatedTime estimate_simulated_time(const compiler::LayerPlan& plan, const HostTensor& topk_ids,
                                      const SimulatedRun& run) {
  const Layer& layer = plan.layer;
  const Routing routing = count_rows(layer, topk_ids);
  SimulatedTime time;
  if (run.makes_weights) time.random_data = weight_count(layer) * kPerRandomWeight * 1e-9;
  double checked = weight_count(layer) * kPerCheckedWeight;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    const compiler::Work work = compiler::count_work(kernel, routing.rows);
    const KernelCost cost = std::visit(CostOfSpec{routing, work.min_bytes}, kernel.spec);
    const bool is_launched = kernel.gradient_mode != compiler::GradientMode::kAdd;
    const int32_t threads = std::max(std::min(run.cores, cost.most_ctas), 1);
    time.kernels.push_back(is_launched ? cost.nanoseconds * 1e-9 / threads : 0.0);
    if (is_launched)
      checked += std::min(static_cast<double>(work.multiply_adds), kMostCheckedProducts) *
                 kPerCheckedProduct;
  }
  if (run.is_checked) time.check = checked * 1e-9 / std::max(run.cores, 1);
  return time;
}

}  // namespace moejit::cli
