// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/planner/candidates.h"

#include <array>

namespace moejit::compiler {
namespace {

constexpr std::array kTransposeThreads = {64, 128, 256, 512};
// More threads leave too few registers for the block of a thread, or its row.
constexpr std::array kTransposeThreadsPerSm = {256, 384, 512};

// Returns specs that differ from the usual one in the threads of a CTA and of an SM. A call with
// one tile has no use for more threads.
template <typename Spec>
std::vector<Candidate<Spec>> thread_candidates(const Spec& usual, const CallBounds& bounds) {
  CandidateList<Spec> list;
  list.add(usual);
  for (const int32_t threads_of_sm : kTransposeThreadsPerSm)
    for (const int32_t threads : kTransposeThreads) {
      Spec spec = with_threads_per_sm(usual, threads_of_sm);
      spec.threads = threads;
      const bool is_whole = threads_of_sm % threads == 0;
      const bool fits = threads_of_sm <= usual_threads_per_sm(usual);
      const bool is_of_use =
          threads <= usual.threads || busy_ctas(KernelSpec(spec), bounds, bounds.max_tokens) > 1;
      if (is_whole && fits && is_of_use) list.add(spec);
    }
  return std::move(list).take();
}

template <typename Spec>
Choices thread_choices(const Spec& spec) {
  return {{"threads", spec.threads}, {"threads_per_sm", threads_per_sm(spec)}};
}

void add_rows(ProblemName& name, int32_t local_experts, const CallBounds& bounds) {
  name.add("local_experts", local_experts);
  name.add_unless(1, "splits_alignment", bounds.splits_alignment);
  name.add("rows", rows_class(mean_rows(bounds)));
}

}  // namespace

std::string problem_name(const TransposeSpec& spec, const CallBounds& bounds) {
  ProblemName name("transpose");
  name.add("format", to_string(spec.format));
  name.add("rule", to_string(spec.rule));
  name.add("source", to_string(spec.source));
  name.add_unless(false, "counts_flushed", spec.counts_flushed);
  name.add("columns", spec.columns);
  add_rows(name, spec.local_experts, bounds);
  // Gathered rows of a token are found in L2.
  if (spec.source != RowSource::kInOrder)
    name.add("tokens", rows_class(std::max<int64_t>(bounds.max_tokens, 1)));
  return std::move(name).take();
}

std::string problem_name(const ColumnCastSpec& spec, const CallBounds& bounds) {
  ProblemName name("column_cast");
  name.add("source", to_string(spec.source));
  name.add("columns", spec.columns);
  add_rows(name, spec.local_experts, bounds);
  if (spec.source != RowSource::kInOrder)
    name.add("tokens", rows_class(std::max<int64_t>(bounds.max_tokens, 1)));
  return std::move(name).take();
}

std::string problem_name(const GatedGradientSpec& spec, const CallBounds& bounds) {
  ProblemName name("gated_gradient");
  name.add("activation", to_string(spec.activation));
  name.add("columns", spec.columns);
  name.add_unless(true, "stores_rows", spec.stores_rows);
  name.add_unless(true, "tells_dprobs", spec.tells_dprobs);
  name.add_unless(true, "transposes_gradient", spec.transposes_gradient);
  name.add_unless(false, "casts_columns", spec.casts_columns);
  if (spec.pass != GradientPass::kOnly) name.add("pass", to_string(spec.pass));
  add_rows(name, spec.local_experts, bounds);
  return std::move(name).take();
}

std::string problem_name(const GroupColumnsSpec& spec, const CallBounds& bounds) {
  ProblemName name("group_columns");
  name.add("pass", to_string(spec.pass));
  name.add("source", to_string(spec.source));
  name.add("columns", spec.columns);
  name.add_unless(false, "amax_rows", spec.has_amax_rows);
  if (has_matrices(spec)) {
    name.add("local_experts", spec.local_experts);
    name.add("sections", spec.sections);
    name.add("section_rows", spec.section_rows);
    name.add_unless(false, "interleaved", spec.is_interleaved);
    return std::move(name).take();
  }
  add_rows(name, spec.local_experts, bounds);
  if (spec.source != RowSource::kInOrder)
    name.add("tokens", rows_class(std::max<int64_t>(bounds.max_tokens, 1)));
  return std::move(name).take();
}

Choices choices_of(const TransposeSpec& spec) { return thread_choices(spec); }

Choices choices_of(const ColumnCastSpec& spec) { return thread_choices(spec); }

Choices choices_of(const GatedGradientSpec& spec) { return thread_choices(spec); }

Choices choices_of(const GroupColumnsSpec& spec) { return thread_choices(spec); }

std::vector<Candidate<TransposeSpec>> candidates_of(const TransposeSpec& usual,
                                                    const CallBounds& bounds) {
  return thread_candidates(usual, bounds);
}

std::vector<Candidate<ColumnCastSpec>> candidates_of(const ColumnCastSpec& usual,
                                                     const CallBounds& bounds) {
  return thread_candidates(usual, bounds);
}

std::vector<Candidate<GatedGradientSpec>> candidates_of(const GatedGradientSpec& usual,
                                                        const CallBounds& bounds) {
  return thread_candidates(usual, bounds);
}

std::vector<Candidate<GroupColumnsSpec>> candidates_of(const GroupColumnsSpec& usual,
                                                       const CallBounds& bounds) {
  return thread_candidates(usual, bounds);
}

}  // namespace moejit::compiler
