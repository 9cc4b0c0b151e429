// SPDX-License-Identifier: Apache-2.0
#include "cli/report/tuning_use.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {

using compiler::KernelPlan;
using compiler::Tuning;

std::optional<TuningUse> tuning_use(const compiler::Plan& plan, const Tuning* tuning) {
  if (tuning == nullptr) return std::nullopt;
  TuningUse use{.gpu = to_string(tuning->gpu())};
  for (const KernelPlan& kernel : plan.kernels) {
    if (kernel.problem.empty()) continue;
    ++use.kernels;
    const std::optional<Tuning::Found> found = tuning->find(kernel.problem);
    if (!found || kernel.choices != found->entry->choices) continue;
    ++use.recorded;
    use.hints += found->is_hint ? 1 : 0;
    const std::string gpu = to_string(*found->measured_on);
    if (std::ranges::count(use.measured_on, gpu) == 0) use.measured_on.push_back(gpu);
  }
  return use;
}

std::string tuning_text(const TuningUse& use) {
  if (use.recorded == 0)
    return fmt::format("none of {} kernels that may be tuned has choices of a record", use.kernels);
  std::string text =
      fmt::format("{} of {} kernels have choices that were measured on the {}", use.recorded,
                  use.kernels, fmt::join(use.measured_on, ", and on the "));
  if (use.hints > 0)
    text += fmt::format("; {} of them are hints, since this is the {}", use.hints, use.gpu);
  return text;
}

void tell_tuning(const std::optional<TuningUse>& use, const Terminal& terminal) {
  if (!use) return;
  if (use->hints > 0)
    terminal.warn(tuning_text(*use));
  else
    terminal.note(tuning_text(*use));
}

void add_tuning(nlohmann::ordered_json& json, const std::optional<TuningUse>& use) {
  if (!use) return;
  json["tuning"] = {{"kernels", use->kernels},
                    {"recorded", use->recorded},
                    {"hints", use->hints},
                    {"measured_on", use->measured_on},
                    {"gpu", use->gpu}};
}

}  // namespace moejit::cli
