// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_bounds.h"
#include "compiler/choices.h"
#include "compiler/kernels/contraction_grouped_gemm.h"
#include "compiler/kernels/gated_gradient.h"
#include "compiler/kernels/group_columns.h"
#include "compiler/kernels/grouped_gemm.h"
#include "compiler/kernels/row_chain.h"
#include "compiler/kernels/transpose.h"
#include "compiler/launch.h"
#include "compiler/plan.h"
#include "compiler/support/integer.h"
#include "compiler/target.h"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::compiler {

// Puts together the name of a problem: its kind, then fields that tell problems apart, in one line.
class ProblemName {
 public:
  explicit ProblemName(std::string_view kind) : text_(kind) {}

  template <typename Value>
  void add(std::string_view key, const Value& value) {
    text_ += fmt::format(" {}={}", key, value);
  }
  // Adds a field unless it has the value that most problems have.
  template <typename Value>
  void add_unless(const Value& usual, std::string_view key, const Value& value) {
    if (value != usual) add(key, value);
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

// A legal spec for a problem, and what was chosen for it where there was a choice. All candidates
// of a problem give the same bits.
template <typename Spec>
struct Candidate {
  Spec spec;
  Choices choices;
};

// Collects the candidates of a problem. Each spec has a function choices_of().
template <typename Spec>
class CandidateList {
 public:
  // Adds a spec unless the list has it already, or it takes more shared memory than any CTA has.
  void add(const Spec& spec) {
    const auto is_same = [&](const Candidate<Spec>& candidate) { return candidate.spec == spec; };
    if (launch_shape(spec).shared_bytes <= kHopperSharedBytes &&
        std::ranges::none_of(candidates_, is_same))
      candidates_.push_back({spec, choices_of(spec)});
  }
  std::vector<Candidate<Spec>> take() && { return std::move(candidates_); }

 private:
  std::vector<Candidate<Spec>> candidates_;
};

// Rows of a group in the largest call. `mean` and `total` are rows if all experts, also of other
// ranks, are chosen alike.
struct GroupRows {
  int64_t mean = 0;
  int64_t most = 0;   // of the largest group
  int64_t total = 0;  // of all groups
};

// Returns the rows of an expert's group in a layer's calls. A token goes to an expert at most once,
// so a group has at most max_tokens rows.
GroupRows group_rows(const CallBounds& bounds);

// Returns how many permuted rows the largest call has on this rank in the mean, pad rows aside; 1
// at least.
int64_t mean_rows(const CallBounds& bounds);

// Returns the middle of the class of row counts that `rows` (1 or more) is in. There are two
// classes to an octave: 1, 1, 2, 3, 4, 6, 8, 11, 16, ...
int64_t rows_class(int64_t rows);

// Returns the specs of a GEMM that cover `columns` columns: the chosen one, with wide tiles alone,
// and with narrow tiles alone.
template <typename Spec>
std::vector<Spec> covers_of(const Spec& chosen, int32_t columns) {
  Spec wide = chosen, narrow = chosen;
  wide.wide_tiles = static_cast<int32_t>(ceil_div(columns, chosen.wide_columns));
  wide.narrow_tiles = 0;
  narrow.wide_tiles = 0;
  narrow.narrow_tiles = static_cast<int32_t>(ceil_div(columns, chosen.narrow_columns));
  return {chosen, wide, narrow};
}

// Returns the name under which records keep what was measured for a problem: kind and fields, in
// one line. choose_spec() says which fields a problem has. Calls of one class of rows share a name.
std::string problem_name(const GroupedGemmSpec& problem, const GroupRows& rows);

// Returns the choices that a complete spec was made with. The knobs are `wide_tiles` and
// `narrow_tiles` of a section, `stages` and `band_tiles`. Some specs have more: `wide_columns` if
// wide tiles have not the usual width, `cluster_ctas` if there are clusters, and `shares_a` if
// these share A. Swapped tiles have `tile_rows`, `stages`, the knobs of clusters, and `ctas_per_sm`
// if CTAs share an SM.
Choices choices_of(const GroupedGemmSpec& spec);

// Returns the legal specs of a problem, at most 44, each once. The first is the spec of
// choose_spec(), then others follow in the order of the resources that they take.
std::vector<Candidate<GroupedGemmSpec>> grouped_gemm_candidates(const GroupedGemmSpec& problem,
                                                                const GroupRows& rows);

// Returns the name under which records keep what was measured for a problem with about this many
// tokens a group. choose_tiles() says which fields a problem has; problem_name() of
// candidates.h makes names alike.
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

// Returns the name under which records keep what was measured for a chain in calls within the
// bounds, as problem_name() of candidates.h does. It has no knob of the spec.
std::string problem_name(const RowChainSpec& spec, const CallBounds& bounds);

// Returns the choices that a chain was made with. The knobs are `threads` of a CTA,
// `segments_in_flight`, `threads_per_sm`, and `rows_per_burst` where rows are permuted unchanged.
Choices choices_of(const RowChainSpec& spec);

// Returns the legal specs that compute what the usual one computes, at most 29, each once. The
// usual one is first; others follow in the order of the resources that they take. From the usual
// one they differ in one knob, in segments and threads, or in segments and threads of an SM.
std::vector<Candidate<RowChainSpec>> candidates_of(const RowChainSpec& usual,
                                                   const CallBounds& bounds);

// Return the name under which records keep what was measured in calls within the bounds, as
// problem_name() of candidates.h does. They are for a transpose, a column-wise cast,
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

// Makes a spec that was chosen for Hopper small enough for a target, and takes out what its
// instructions lack. The results keep their bits.
RowChainSpec fitted(RowChainSpec spec, const Target& target);
GatedGradientSpec fitted(GatedGradientSpec spec, const Target& target);
GroupedGemmSpec fitted(GroupedGemmSpec spec, const Target& target);
ContractionGroupedGemmSpec fitted(ContractionGroupedGemmSpec spec, const Target& target);
template <typename Spec>
Spec fitted(const Spec& spec, const Target&) {
  return spec;
}

// Returns the spec of a kernel whose problem is set, as it fits the target. If the options' records
// name choices for the problem, it is the spec of `list()` with these choices. Else it is the spec
// of `choose()`. Sets the kernel's choices, and its candidates if they are asked for, each
// once. Without records nothing is listed.
template <typename Choose, typename List>
auto choose_candidate(KernelPlan& kernel, const Target& target, const PlanOptions& options,
                      const Choose& choose, const List& list) {
  auto spec = fitted(choose(), target);
  kernel.choices = choices_of(spec);
  if (options.tuning == nullptr && !options.list_candidates) return spec;
  const auto found =
      options.tuning == nullptr ? std::nullopt : options.tuning->find(kernel.problem);
  for (const auto& candidate : list()) {
    const auto of_target = fitted(candidate.spec, target);
    const Choices choices = choices_of(of_target);
    if (options.list_candidates &&
        std::ranges::find(kernel.candidates, choices) == kernel.candidates.end())
      kernel.candidates.push_back(choices);
    if (!found || choices != found->entry->choices) continue;
    spec = of_target;
    kernel.choices = choices;
  }
  return spec;
}

// Adds a sentence to the kernel's reasons. It says whether its choices come from a record, with
// what gain, or why they are the usual ones. Adds nothing without records, or if the kernel is not
// tuned.
void explain_tuning(KernelPlan& kernel, const Target& target, const Tuning* tuning);

// Gives a memory-bound kernel, whose spec has the usual choices, its problem and those choices that
// the options' records name for it. Other kernels stay as they are.
void tune_kernel(KernelPlan& kernel, const CallBounds& bounds, const Target& target,
                 const PlanOptions& options);

}  // namespace moejit::compiler
