// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/column_cast.h"
#include "compiler/kernels/gated_gradient.h"
#include "compiler/kernels/group_columns.h"
#include "compiler/kernels/transpose.h"
#include "compiler/planner/candidate.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Return the name under which records keep what was measured in calls within the bounds, as
// problem_name() of grouped_gemm_candidates.h does. They are for a transpose, a column-wise cast,
// and a gradient that is transposed on the way. It has no knob of the spec.
std::string problem_name(const TransposeSpec& spec, const CallBounds& bounds);
std::string problem_name(const ColumnCastSpec& spec, const CallBounds& bounds);
std::string problem_name(const GatedGradientSpec& spec, const CallBounds& bounds);
std::string problem_name(const GroupColumnsSpec& spec, const CallBounds& bounds);

// Return the choices that a kernel was made with. The knobs are `threads` of a CTA and
// `threads_per_sm`.
Choices choices_of(const TransposeSpec& spec);
Choices choices_of(const ColumnCastSpec& spec);
Choices choices_of(const GatedGradientSpec& spec);
Choices choices_of(const GroupColumnsSpec& spec);

// Return the legal specs that compute what the usual one computes, at most 29, each once. The usual
// one is first; others follow in the order of the resources that they take.
std::vector<Candidate<TransposeSpec>> candidates_of(const TransposeSpec& usual,
                                                    const CallBounds& bounds);
std::vector<Candidate<ColumnCastSpec>> candidates_of(const ColumnCastSpec& usual,
                                                     const CallBounds& bounds);
std::vector<Candidate<GatedGradientSpec>> candidates_of(const GatedGradientSpec& usual,
                                                        const CallBounds& bounds);
std::vector<Candidate<GroupColumnsSpec>> candidates_of(const GroupColumnsSpec& usual,
                                                       const CallBounds& bounds);

}  // namespace moejit::compiler
