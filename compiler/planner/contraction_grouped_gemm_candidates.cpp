// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::array kContractionBands = {4, 8, 16, 32};
constexpr std::array kPanelsLoaded = {0, 2, 3, 4};

// Stages of the pipeline and panels of the staging buffer, which share the memory of a CTA.
struct Buffers {
  int32_t stages, panels_staged;
};
constexpr std::array kBuffers = {Buffers{3, 3}, Buffers{3, 6}, Buffers{4, 2},
                                 Buffers{4, 3}, Buffers{4, 4}, Buffers{5, 3}};

// Returns whether the panels of a bf16 gradient that is added to all come in the first round.
bool may_be_staged(const ContractionGroupedGemmSpec& chosen, const Buffers& buffers) {
  return chosen.output != GradientOutput::kBf16Add || buffers.panels_staged >= chosen.panels_loaded;
}

// Clusters are tried where a group has so many tokens in the mean, by the class that names a
// problem. With fewer, D is most of the traffic.
constexpr int64_t kLeastClusterColumns = 512;

// Adds clusters of two CTAs in all orders, and with fewer stages in the usual one. Narrow tiles
// only read more of A than sharing B spares.
void add_clusters(ContractionGroupedGemmSpec chosen, int64_t mean_columns,
                  CandidateList<ContractionGroupedGemmSpec>& list) {
  if (!may_be_clustered(chosen) || chosen.wide_tiles == 0 ||
      rows_class(std::max<int64_t>(mean_columns, 1)) < kLeastClusterColumns)
    return;
  chosen.cluster_ctas = 2;
  ContractionGroupedGemmSpec fewer_stages = chosen;
  fewer_stages.stages = chosen.stages - 1;
  if (fewer_stages.stages > 2) list.add(fewer_stages);
  for (const int32_t band : kContractionBands) {
    chosen.band_tiles = band;
    list.add(chosen);
  }
}

}  // namespace

std::string problem_name(const ContractionGroupedGemmSpec& problem, int64_t mean_columns) {
  return fmt::format(
      "contraction_grouped_gemm {}scales={} {}output={} local_experts={} sections={} rows={} "
      "{}n={} columns={}",
      problem.is_a_e5m2              ? "a=F8_E5M2 "
      : has_bf16_end_scales(problem) ? "operands=BF16 "
                                     : "",
      to_string(problem.scales),
      problem.accumulation == GemmAccumulation::kFast ? "accumulation=fast " : "",
      to_string(problem.output), problem.local_experts, problem.sections, problem.rows,
      problem.is_interleaved ? "interleaved=true "
      : problem.is_separate  ? "separate=true "
                             : "",
      problem.n, rows_class(std::max<int64_t>(mean_columns, 1)));
}

Choices choices_of(const ContractionGroupedGemmSpec& spec) {
  Choices choices = {{"wide_tiles", spec.wide_tiles},
                     {"narrow_tiles", spec.narrow_tiles},
                     {"stages", spec.stages},
                     {"panels_staged", spec.panels_staged},
                     {"panels_loaded", spec.panels_loaded},
                     {"band_tiles", spec.band_tiles}};
  if (spec.cluster_ctas > 1) choices["cluster_ctas"] = spec.cluster_ctas;
  if (spec.start_times > 1) choices["start_times"] = spec.start_times;
  return choices;
}

std::vector<Candidate<ContractionGroupedGemmSpec>> contraction_grouped_gemm_candidates(
    const ContractionGroupedGemmSpec& problem, int64_t mean_columns) {
  const ContractionGroupedGemmSpec chosen = choose_tiles(problem, mean_columns);
  CandidateList<ContractionGroupedGemmSpec> list;
  list.add(chosen);
  for (const Buffers& buffers : kBuffers) {
    if (!may_be_staged(chosen, buffers)) continue;
    for (ContractionGroupedGemmSpec spec : covers_of(chosen, chosen.n)) {
      spec.stages = buffers.stages;
      spec.panels_staged = buffers.panels_staged;
      spec.panels_loaded = std::min(spec.panels_loaded, spec.panels_staged);
      list.add(spec);
    }
  }
  for (const int32_t panels : kPanelsLoaded) {
    ContractionGroupedGemmSpec spec = chosen;
    spec.panels_loaded = panels;
    if (panels > 0) spec.start_times = 1;  // old values come ahead, under the products
    if (chosen.output == GradientOutput::kF32Add && panels <= spec.panels_staged) list.add(spec);
  }
  for (const int32_t band : kContractionBands) {
    ContractionGroupedGemmSpec spec = chosen;
    spec.band_tiles = band;
    list.add(spec);
  }
  for (const int32_t times : {1, kStartTimes}) {
    ContractionGroupedGemmSpec spec = chosen;
    spec.start_times = times;
    if (chosen.output == GradientOutput::kF32Add) list.add(spec);
  }
  add_clusters(chosen, mean_columns, list);
  return std::move(list).take();
}

}  // namespace moejit::compiler
