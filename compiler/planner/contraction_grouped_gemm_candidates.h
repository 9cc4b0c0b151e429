// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/contraction_grouped_gemm.h"
#include "compiler/planner/candidate.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns the name under which records keep what was measured for a problem with about this many
// tokens a group. choose_tiles() says which fields a problem has; problem_name() of
// grouped_gemm_candidates.h makes names alike.
std::string problem_name(const ContractionGroupedGemmSpec& problem, int64_t mean_columns);

// Returns the choices that a complete spec was made with. The knobs are `wide_tiles` and
// `narrow_tiles` of a row of tiles, `stages`, `panels_staged`, `panels_loaded`, `band_tiles`,
// `cluster_ctas` if there are clusters, and `start_times` if CTAs do not all start at once.
Choices choices_of(const ContractionGroupedGemmSpec& spec);

// Returns the legal specs of a problem, at most 30, each once. The first is the spec of
// choose_tiles(). The others differ from it in tiles, stages and panels, in the panels loaded, in
// the times at which CTAs start, or in the bands. Other bands are also tried with clusters of CTAs.
std::vector<Candidate<ContractionGroupedGemmSpec>> contraction_grouped_gemm_candidates(
    const ContractionGroupedGemmSpec& problem, int64_t mean_columns);

}  // namespace moejit::compiler
