// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/open_plans.h"
#include "cli/report/bench_report.h"
#include "runtime/trial/trial.h"

#include <string_view>

namespace moejit::cli {

// What `moejit bench` says where it finds no GPU.
inline constexpr std::string_view kBenchWithoutGpu =
    "bench has no other target; without a GPU, moejit run --target sim --check runs a layer, and "
    "moejit plan has its bytes and FLOP";

// Returns the description of a run, without the counters. `monitor` may be null.
BenchRun describe_run(const BenchCommand& command, trial::Devices& devices,
                      const measure::GpuMonitor* monitor);

// Runs `moejit bench --gemms`: each case is checked against the reference on a sample, then
// measured. After an error the cases measured before are still printed. kCheckFailed: a result is
// wrong, and its figures are not printed.
Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal);

// Measures the trial of a layer with expert_parallel for `moejit bench --ranks R`, and prints its
// report. It times the kernels, with calls that follow without a pause, and tells what dispatch and
// combine bring over the wire.
Result<void> bench_group(const BenchCommand& command, const OpenedPlans& opened,
                         trial::Trial& trial, runtime::Engine& engine, Terminal& terminal);

}  // namespace moejit::cli
