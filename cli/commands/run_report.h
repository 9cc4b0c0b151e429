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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// What `moejit run` reports at its end.
struct RunReport {
  std::string target;              // and why it was chosen
  std::vector<int64_t> tokens;     // T of each rank; empty where there is none
  std::optional<int64_t> rows;     // where there are rows: offs[E], or P where nothing tells it
  std::optional<int64_t> columns;  // C, where there is one
  std::optional<trial::RandomInputs> random;  // as routed_at_random() returns it
  std::vector<uint32_t> status = {0};         // of each rank
  std::vector<std::string> calls;             // those made, if the user chose a call
  std::vector<std::size_t> kernels;           // of these calls, by index into Plan::kernels
  std::vector<measure::KernelTimer::Sample> times;
  bool is_checked = false;
  std::vector<check::TensorCheck> checks;
  runtime::EngineCounters counters;
  std::string output;               // file, may be empty
  std::optional<TuningUse> tuning;  // if there were records
};

// Sets those sizes of the report that the operation has.
void describe_sizes(const compiler::Plan& plan, const trial::CallInputs& call, RunReport& report);

// Returns the report as JSON.
std::string json_of(const compiler::Plan& plan, const RunReport& report);

// Prints the report: a table of kernels, for a group one of its checks, or JSON. Then judges the
// run. A status word that is set is a warning or, if `is_strict`, the error kDeviceStatus. A rank
// that was not heard of is that error, too. A tensor that differs is the error kCheckFailed.
Result<void> finish_run(const compiler::Plan& plan, const RunReport& report,
                        const RunCommand& command, Terminal& terminal);

// Returns what `moejit run --output` writes of a layer's results, in the form that docs/cli.md
// describes: all of them with intermediates, else those that is_output() names.
runtime::TensorMap tensors_for_file(const compiler::Plan& plan, const RunCalls& calls,
                                    runtime::TensorMap results, bool with_intermediates);

}  // namespace moejit::cli
