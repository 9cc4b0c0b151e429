// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/cta_count.h"

#include <algorithm>
#include <variant>

namespace moejit::runtime {
namespace {

using compiler::GroupedGemmSpec;
using compiler::KernelPlan;
using compiler::Layer;
using compiler::LoadStage;
using compiler::RouteSpec;
using compiler::RowChainSpec;
using compiler::StoreStage;
using compiler::TileChainSpec;

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Experts that T tokens can reach.
int64_t most_experts(const Layer& layer, int64_t tokens) {
  return std::min<int64_t>(layer.local_experts, tokens * layer.top_k);
}

// CTAs that T tokens give work to.
int64_t busy(const RouteSpec&, const KernelPlan& kernel, const Layer& layer, int64_t tokens) {
  // At least one: counts and offs are written for T = 0 too.
  return std::max<int64_t>(1, ceil_div(tokens * layer.top_k, kernel.launch.threads));
}

int64_t busy(const TileChainSpec&, const KernelPlan& kernel, const Layer&, int64_t) {
  return kernel.launch.max_ctas;
}

int64_t busy(const RowChainSpec& spec, const KernelPlan& kernel, const Layer& layer,
             int64_t tokens) {
  int64_t rows = walks_permuted_rows(spec) ? most_permuted_rows(layer, tokens) : tokens;
  // Few tokens can make many pad rows; eight to a row's share of CTAs, as the plan has it.
  if (spec.store == StoreStage::kPermuted || spec.store == StoreStage::kRowsAndPermuted)
    rows = std::max(rows, (most_permuted_rows(layer, tokens) - tokens * layer.top_k) / 8);
  constexpr int64_t kLanesPerSegment = 8;
  const int64_t segments_per_cta =
      kernel.launch.threads / kLanesPerSegment * spec.segments_in_flight;
  return ceil_div(rows * ceil_div(spec.columns, 128), segments_per_cta);
}

int64_t busy(const GroupedGemmSpec& spec, const KernelPlan&, const Layer& layer, int64_t tokens) {
  // Every expert that has rows may have one tile that is not full.
  const int64_t m_tiles =
      most_permuted_rows(layer, tokens) / spec.tile_m + most_experts(layer, tokens);
  return m_tiles * spec.sections * ceil_div(spec.section_n, spec.tile_n);
}

}  // namespace

bool walks_permuted_rows(const RowChainSpec& spec) {
  return spec.load == LoadStage::kGatedRows || spec.store == StoreStage::kGroupedRows;
}

int64_t most_permuted_rows(const Layer& layer, int64_t tokens) {
  const int64_t rows =
      tokens * layer.top_k + most_experts(layer, tokens) * (layer.splits_alignment - 1);
  return std::min(rows, layer.max_permuted_rows);
}

int64_t cta_count(const KernelPlan& kernel, const Layer& layer, int64_t tokens, int32_t sm_count) {
  const auto& launch = kernel.launch;
  const int64_t useful =
      std::visit([&](const auto& spec) { return busy(spec, kernel, layer, tokens); }, kernel.spec);
  const int64_t most = std::min(useful, launch.max_ctas);
  if (launch.ctas_per_sm == 0) return most;
  return std::min(most, int64_t{launch.ctas_per_sm} * sm_count);
}

}  // namespace moejit::runtime
