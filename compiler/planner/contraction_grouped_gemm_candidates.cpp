// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/contraction_grouped_gemm_candidates.h"

#include "compiler/planner/contraction_grouped_gemm.h"
#include "compiler/planner/tile_covers.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::array kBands = {4, 8, 16, 32};
constexpr std::array kPanelsLoaded = {0, 2, 3, 4};

// Stages of the pipeline and panels of the staging buffer, which share what memory a CTA has.
struct Buffers {
  int32_t stages, panels_staged;
};
constexpr std::array kBuffers = {Buffers{3, 3}, Buffers{3, 6}, Buffers{4, 2},
                                 Buffers{4, 3}, Buffers{4, 4}, Buffers{5, 3}};

// Returns the covers of D's columns. Factors of rows leave registers for narrow tiles alone.
std::vector<ContractionGroupedGemmSpec> column_covers(const ContractionGroupedGemmSpec& chosen) {
  if (chosen.scales == GradientScales::kRow) return {chosen};
  return covers_of(chosen, chosen.n);
}

}  // namespace

std::string problem_name(const ContractionGroupedGemmSpec& problem, int64_t mean_columns) {
  return fmt::format(
      "contraction_grouped_gemm scales={} output={} local_experts={} sections={} rows={} "
      "{}n={} columns={}",
      to_string(problem.scales), to_string(problem.output), problem.local_experts, problem.sections,
      problem.rows, problem.is_interleaved ? "interleaved=true " : "", problem.n,
      rows_class(std::max<int64_t>(mean_columns, 1)));
}

Choices choices_of(const ContractionGroupedGemmSpec& spec) {
  return {{"wide_tiles", spec.wide_tiles},
          {"narrow_tiles", spec.narrow_tiles},
          {"stages", spec.stages},
          {"panels_staged", spec.panels_staged},
          {"panels_loaded", spec.panels_loaded},
          {"band_tiles", spec.band_tiles}};
}

std::vector<Candidate<ContractionGroupedGemmSpec>> contraction_grouped_gemm_candidates(
    const ContractionGroupedGemmSpec& problem, int64_t mean_columns) {
  const ContractionGroupedGemmSpec chosen = choose_tiles(problem, mean_columns);
  CandidateList<ContractionGroupedGemmSpec> list;
  list.add(chosen);
  for (const Buffers& buffers : kBuffers)
    for (ContractionGroupedGemmSpec spec : column_covers(chosen)) {
      spec.stages = buffers.stages;
      spec.panels_staged = buffers.panels_staged;
      spec.panels_loaded = std::min(spec.panels_loaded, spec.panels_staged);
      list.add(spec);
    }
  for (const int32_t panels : kPanelsLoaded) {
    ContractionGroupedGemmSpec spec = chosen;
    spec.panels_loaded = panels;
    if (chosen.output == GradientOutput::kF32Add && panels <= spec.panels_staged) list.add(spec);
  }
  for (const int32_t band : kBands) {
    ContractionGroupedGemmSpec spec = chosen;
    spec.band_tiles = band;
    list.add(spec);
  }
  return std::move(list).take();
}

}  // namespace moejit::compiler
