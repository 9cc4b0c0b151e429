// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_steps.h"

#include <fmt/core.h>

namespace moejit::cli {

std::vector<Step> run_steps(const compiler::Plan& plan,
                            const std::optional<trial::SimulatedTime>& time, bool is_checked) {
  std::vector<Step> steps = {{kDataStep, time ? time->random_data : 0.0}, {kPrepareStep}};
  for (const bool is_scales : {false, true})  // a run finds the scales of the next step at its end
    for (size_t i = 0; i < plan.kernels.size(); ++i)
      if (is_of_scales(plan.kernels[i].phase) == is_scales &&
          plan.kernels[i].gradient_mode != compiler::GradientMode::kAdd)  // a run overwrites them
        steps.push_back({plan.kernels[i].operation, time ? time->kernels[i] : 0.0});
  if (is_checked) steps.push_back({kCheckStep, time ? time->check : 0.0});
  return steps;
}

bool is_long(double seconds) { return seconds >= 30.0; }

std::string long_run_text(double seconds, int64_t most_tokens) {
  const std::string tokens = most_tokens > 0 ? fmt::format("--tokens {}, or ", most_tokens) : "";
  return fmt::format(
      "this takes about {} in the simulator; try {}fewer experts, as in "
      "docs/examples/layers/deepseek-v3-slice.json",
      duration_text(seconds), tokens);
}

Result<void> RunObserver::before(size_t kernel_index) {
  progress_.start(plan_.kernels[kernel_index].operation);
  return timer_.before(kernel_index);
}

}  // namespace moejit::cli
