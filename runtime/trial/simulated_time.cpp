// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/simulated_time.h"

#include "compiler/compiler.h"
#include "compiler/work.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace moejit::trial {
namespace {

using runtime::HostTensor;

using compiler::CallRows;
using compiler::Layer;

// Nanoseconds on one core, measured as docs/simulator.md describes.
constexpr double kPerRandomWeight = 18.5;
constexpr double kPerCheckedWeight = 10.5;  // the CPU reference quantizes it
constexpr double kPerCheckedProduct = 5.7;
constexpr double kMostCheckedProducts = 0x1p33;  // of one GEMM; larger GEMMs are sampled

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The rows of each local expert, and their sums.
struct Routing {
  std::vector<int64_t> counts;
  CallRows rows;
};

Routing count_rows(const Layer& layer, const HostTensor& topk_ids) {
  const int64_t tokens = topk_ids.shape.front();
  Routing routing{std::vector<int64_t>(static_cast<size_t>(layer.local_experts)),
                  {.tokens = tokens, .routed_tokens = tokens, .routed_experts = 0}};
  for (const int64_t id : expert_ids(topk_ids))
    if (id >= 0 && id < layer.local_experts) ++routing.counts[static_cast<size_t>(id)];
  routing.counts.insert(routing.counts.end(), static_cast<size_t>(layer.shared.experts), tokens);
  for (const int64_t count : routing.counts) {
    routing.rows.routed += count;
    if (count > 0) ++*routing.rows.routed_experts;
    routing.rows.padded += round_up(count, layer.splits_alignment);
  }
  return routing;
}

double weight_count(const Layer& layer) {
  return static_cast<double>(compiler::w1_sections(layer) + 1) * held_experts(layer) *
         layer.intermediate * layer.hidden;
}

}  // namespace

double SimulatedTime::total() const {
  return std::accumulate(kernels.begin(), kernels.end(), random_data + check);
}

SimulatedTime estimate_simulated_time(const compiler::Plan& plan, const HostTensor& topk_ids,
                                      const SimulatedRun& run) {
  const Layer& layer = *plan.layer;
  const Routing routing = count_rows(layer, topk_ids);
  SimulatedTime time;
  if (run.makes_weights) time.random_data = weight_count(layer) * kPerRandomWeight * 1e-9;
  double checked = weight_count(layer) * kPerCheckedWeight;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const compiler::KernelPlan& kernel = plan.kernels[i];
    const compiler::Work work = compiler::count_work(kernel, routing.rows);
    const compiler::SimulatedCost cost = compiler::simulated_cost(kernel, work, routing.counts);
    const bool is_launched = run.kernels ? std::ranges::find(*run.kernels, i) != run.kernels->end()
                                         : !plan.calls[call_of_kernel(plan, i)].adds;
    const int32_t threads = std::max(std::min(run.cores, cost.most_ctas), 1);
    time.kernels.push_back(is_launched ? cost.nanoseconds * 1e-9 / threads : 0.0);
    if (is_launched)
      checked += std::min(static_cast<double>(work.multiply_adds), kMostCheckedProducts) *
                 kPerCheckedProduct;
  }
  if (run.is_checked) time.check = checked * 1e-9 / std::max(run.cores, 1);
  return time;
}

}  // namespace moejit::trial
