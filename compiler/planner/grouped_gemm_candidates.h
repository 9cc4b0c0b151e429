// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/grouped_gemm.h"
#include "compiler/planner/candidate.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns the name under which records keep what was measured for a problem: kind and fields, in
// one line. choose_spec() says which fields a problem has. Calls of one class of rows share a name.
std::string problem_name(const GroupedGemmSpec& problem, const GroupRows& rows);

// Returns the choices that a complete spec was made with. The knobs are `wide_tiles` and
// `narrow_tiles` of a section, `stages` and `band_tiles`. Some specs have more: `wide_columns` if
// wide tiles have not the usual width, `cluster_ctas` if there are clusters. Swapped tiles have
// `tile_rows` and `stages` only.
Choices choices_of(const GroupedGemmSpec& spec);

// Returns the legal specs of a problem, at most 34, each once. The first is the spec of
// choose_spec(), then others follow in the order of the resources that they take.
std::vector<Candidate<GroupedGemmSpec>> grouped_gemm_candidates(const GroupedGemmSpec& problem,
                                                                const GroupRows& rows);

}  // namespace moejit::compiler
