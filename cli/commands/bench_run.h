// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "cli/report/bench_report.h"
#include "compiler/layer.h"
#include "compiler/operation.h"
#include "runtime/trial/open_target.h"

namespace moejit::cli {

// Checks the ranges of repetitions and seconds, or returns kUsage.
Result<void> check_bench_options(const BenchCommand& command);

// Opens the GPU that the command asks for. kUnsupported for the simulator.
Result<trial::OpenedTarget> open_bench_gpu(const BenchCommand& command);

// Returns the description of a run, without the counters. `monitor` may be null.
BenchRun describe_run(const BenchCommand& command, const trial::OpenedTarget& target,
                      const measure::GpuMonitor* monitor);

// Runs `moejit bench --gemms`: each case is checked against the reference on a sample, then
// measured. After an error the cases measured before are still printed. kCheckFailed: a result is
// wrong, and its figures are not printed.
Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal);

// Runs `moejit bench --ranks R` for a layer with expert_parallel, on a group of GPUs of this
// process. It times the kernels, with calls that follow without a pause, and tells what dispatch
// and combine bring over the wire. Error kUsage: the layer lacks the field or has another number of
// ranks, or an option is not for groups.
Result<void> bench_group(const BenchCommand& command, const compiler::Layer& layer,
                         Terminal& terminal);

// Runs `moejit bench` for an operation: times its kernel, cool and hot. Error kUsage: options that
// only layers have.
Result<void> bench_operation(const BenchCommand& command,
                             const compiler::OperationDescription& operation, Terminal& terminal);

}  // namespace moejit::cli
