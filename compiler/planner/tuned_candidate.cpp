// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/tuned_candidate.h"

#include "compiler/tuned_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
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

}  // namespace moejit::compiler
