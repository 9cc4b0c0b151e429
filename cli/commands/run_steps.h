// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "cli/terminal/step_progress.h"
#include "compiler/plan.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/simulated_time.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// The steps of `moejit run` that are no kernels.
inline constexpr const char* kDataStep = "making or reading the data";
inline constexpr const char* kPrepareStep = "kernels from cache or compiler";
inline constexpr const char* kCheckStep = "comparing with the reference";

// Returns all steps of a run: the data, these kernels of the plan, and the check if `is_checked`.
// Without `time` their length is unknown, as on a GPU.
std::vector<Step> run_steps(const compiler::Plan& plan, const std::vector<size_t>& kernels,
                            const std::optional<trial::SimulatedTime>& time, bool is_checked);

// Returns whether a run of so many seconds is long enough to need a warning.
bool is_long(double seconds);

// Returns what to say before a long run in the simulator, and what to do instead. `most_tokens` is
// a number of tokens with a short run; 0: there is none.
std::string long_run_text(double seconds, int64_t most_tokens);

// Estimates how long a run of these kernels on random tokens takes in the simulator, and warns if
// that is long. Returns none for other runs: a GPU takes hardly any time, a file has its own
// tokens, and operations and groups are not estimated.
Result<std::optional<trial::SimulatedTime>> estimate_run(const RunCommand& command,
                                                         const compiler::Plan& plan,
                                                         const std::vector<size_t>& kernels,
                                                         const Terminal& terminal);

// Times the kernels of a run, and tells its progress which one begins.
class RunObserver final : public runtime::LaunchObserver {
 public:
  // All arguments must live longer.
  RunObserver(measure::KernelTimer& timer, StepProgress& progress, const compiler::Plan& plan)
      : timer_(timer), progress_(progress), plan_(plan) {}

  Result<void> before(size_t kernel_index) override;
  Result<void> after(size_t kernel_index) override { return timer_.after(kernel_index); }

 private:
  measure::KernelTimer& timer_;
  StepProgress& progress_;
  const compiler::Plan& plan_;
};

}  // namespace moejit::cli
