// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/candidates.h"

#include "compiler/support/integer.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {

int64_t mean_rows(const CallBounds& bounds) {
  const int64_t experts = std::max<int64_t>(bounds.experts, bounds.groups);
  const int64_t choices = bounds.max_tokens * bounds.top_k;
  const int64_t of_rank = bounds.groups > 0 ? ceil_div(choices * bounds.groups, experts) : choices;
  return std::max<int64_t>(std::min(of_rank, bounds.max_permuted_rows), 1);
}

GroupRows group_rows(const CallBounds& bounds) {
  const int64_t total = mean_rows(bounds);
  return {.mean = ceil_div(total, std::max<int64_t>(bounds.groups, 1)),
          .most = bounds.max_tokens,
          .total = total};
}

int64_t rows_class(int64_t rows) {
  // The middle of class b is 2^(b/2), and its end 2^(b/2 + 1/4). Squares are compared in whole
  // numbers, so that all machines agree. Counts are below 2^31.
  constexpr uint64_t kRootOfTwo = 6521908912666391106;  // sqrt(2) * 2^62, rounded down
  const auto square = static_cast<uint64_t>(rows * rows);
  uint32_t b = 0;
  while (square > kRootOfTwo >> (62 - b)) ++b;
  return std::lround(std::sqrt(std::ldexp(1.0, static_cast<int>(b))));
}

namespace {

std::string measured(const Tuning::Found& found) {
  const TuningEntry& entry = *found.entry;
  return fmt::format("measured on the {}{}, {} rounds", to_string(*found.measured_on),
                     entry.date.empty() ? "" : " on " + entry.date, entry.rounds);
}

std::string gain(const TuningEntry& entry) {
  if (entry.ratio == 1.0) return "no other choices are faster";
  return fmt::format("{:.1f} % less time than the usual choices take (95 %: {:.1f} to {:.1f})",
                     100.0 * (1.0 - entry.ratio), 100.0 * (1.0 - entry.ratio_high),
                     100.0 * (1.0 - entry.ratio_low));
}

std::string reason(const KernelPlan& kernel, const Target& target,
                   const std::optional<Tuning::Found>& found) {
  if (!found) return "usual choices: no tuning record has this problem";
  const TuningEntry& entry = *found->entry;
  if (kernel.choices != entry.choices)
    return fmt::format("usual choices: those of the record, {}, are not offered here ({})",
                       to_string(entry.choices), measured(*found));
  std::string text =
      fmt::format("tuned: {}; {}, {}", to_string(entry.choices), gain(entry), measured(*found));
  if (found->is_hint) text += "; a hint, since that is another GPU";
  if (!is_measured_text(entry, kernel, target))
    text += "; a hint, since the kernel's text has changed since then";
  return text;
}

}  // namespace

void explain_tuning(KernelPlan& kernel, const Target& target, const Tuning* tuning) {
  if (tuning == nullptr || kernel.problem.empty()) return;
  kernel.reasons.push_back(reason(kernel, target, tuning->find(kernel.problem)));
}

namespace {

template <typename Spec>
Spec tuned_spec(KernelPlan& kernel, const Spec& usual, const CallBounds& bounds,
                const Target& target, const PlanOptions& options) {
  kernel.problem = problem_name(usual, bounds);
  return choose_candidate(
      kernel, target, options, [&] { return usual; }, [&] { return candidates_of(usual, bounds); });
}

void add_burst_reason(KernelPlan& kernel, const RowChainSpec& spec) {
  if (spec.rows_per_burst == 0) return;
  kernel.reasons.push_back(
      fmt::format("L2 is asked for {} rows at once: memory turns less often from writing to "
                  "reading",
                  spec.rows_per_burst));
}

}  // namespace

void tune_kernel(KernelPlan& kernel, const CallBounds& bounds, const Target& target,
                 const PlanOptions& options) {
  if (const auto* const chain = std::get_if<RowChainSpec>(&kernel.spec)) {
    const RowChainSpec spec = tuned_spec(kernel, *chain, bounds, target, options);
    add_burst_reason(kernel, spec);
    kernel.spec = spec;
  } else if (const auto* const transpose = std::get_if<TransposeSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, TransposeSpec(*transpose), bounds, target, options);
  } else if (const auto* const cast = std::get_if<ColumnCastSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, ColumnCastSpec(*cast), bounds, target, options);
  } else if (const auto* const gradient = std::get_if<GatedGradientSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, GatedGradientSpec(*gradient), bounds, target, options);
  } else if (const auto* const columns = std::get_if<GroupColumnsSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, GroupColumnsSpec(*columns), bounds, target, options);
  }
}

}  // namespace moejit::compiler
