// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/row_chain.h"
#include "compiler/planner/candidate.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns the name under which records keep what was measured for a chain in calls within the
// bounds, as problem_name() of grouped_gemm_candidates.h does. It has no knob of the spec.
std::string problem_name(const RowChainSpec& spec, const CallBounds& bounds);

// Returns the choices that a chain was made with. The knobs are `threads` of a CTA,
// `segments_in_flight`, `threads_per_sm`, and `rows_per_burst` where rows are permuted unchanged.
Choices choices_of(const RowChainSpec& spec);

// Returns the legal specs that compute what the usual one computes, at most 29, each once. The
// usual one is first; others follow in the order of the resources that they take. From the usual
// one they differ in one knob, in segments and threads, or in segments and threads of an SM.
std::vector<Candidate<RowChainSpec>> candidates_of(const RowChainSpec& usual,
                                                   const CallBounds& bounds);

}  // namespace moejit::compiler
