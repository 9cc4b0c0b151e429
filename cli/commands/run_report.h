// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/run_calls.h"
#include "cli/commands/tuning_records.h"
#include "runtime/check/tensor_check.h"
#include "runtime/engine.h"
#include "runtime/host_tensor.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/operation_inputs.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Suffix of a state's name in checks made after its scales were updated. Checks without the suffix
// are of what casts have recorded.
inline constexpr std::string_view kOfNextStep = " of the next step";

// What `moejit run` reports at its end.
struct RunReport {
  std::string target;              // and why it was chosen
  std::optional<int64_t> tokens;   // T, where there is one
  std::optional<int64_t> rows;     // where there are rows: offs[E], or P where nothing tells it
  std::optional<int64_t> columns;  // C, where there is one
  std::optional<trial::RandomRouting> routing;  // of random data, where rows belong to experts
  uint32_t status = 0;
  std::vector<std::string> calls;    // those made, if the user chose a call
  std::vector<std::size_t> kernels;  // of these calls, by index into Plan::kernels
  std::vector<measure::KernelTimer::Sample> times;
  bool is_checked = false;
  std::vector<check::TensorCheck> checks;
  runtime::EngineCounters counters;
  std::string output;               // file, may be empty
  std::optional<TuningUse> tuning;  // if there were records
};

// Sets those sizes of the report that the operation has.
void describe_sizes(const compiler::Plan& plan, const trial::OperationCall& call,
                    RunReport& report);

// Returns an empty line and one that names the calls of a run; empty if there are none.
std::string calls_text(const std::vector<std::string>& calls);

// Returns a sentence about the status word; empty if no bit is set.
std::string status_text(uint32_t status);

// Returns a table of kernels, or JSON; both end with the counters of the engine.
std::string text_of(const compiler::Plan& plan, const RunReport& report, int32_t width = 0);
std::string json_of(const compiler::Plan& plan, const RunReport& report);

// Prints the report, and judges the run. A status word that is set is a warning or, if `is_strict`,
// the error kDeviceStatus. A tensor that differs is the error kCheckFailed.
Result<void> finish_run(const compiler::Plan& plan, const RunReport& report,
                        const RunCommand& command, Terminal& terminal);

// Returns what `moejit run --output` writes of a layer's results, in the form that docs/cli.md
// describes: all of them with intermediates, else those that is_output() names.
runtime::TensorMap tensors_for_file(const compiler::Plan& plan, const RunCalls& calls,
                                    runtime::TensorMap results, bool with_intermediates);

}  // namespace moejit::cli
