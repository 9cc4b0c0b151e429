// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/open_plans.h"
#include "cli/report/bench_report.h"
#include "cli/report/gemms_report.h"
#include "runtime/trial/trial.h"

#include <optional>
#include <string_view>
#include <vector>

namespace moejit::cli {

// What `moejit bench` says where it finds no GPU.
inline constexpr std::string_view kBenchWithoutGpu =
    "bench has no other target; without a GPU, moejit run --target sim --check runs a layer, and "
    "moejit plan has its bytes and FLOP";

// Returns the description of a run, without the counters. `monitor` may be null.
BenchRun describe_run(const BenchCommand& command, trial::Devices& devices,
                      const measure::GpuMonitor* monitor);

// The cases that were measured before the first that failed.
struct GemmsReport {
  BenchRun run;
  std::vector<GemmResult> results = {};
  std::optional<Error> failure = {};
};

// Checks each case against the reference on a sample, then measures it. Errors: of opening the
// device and the cache. In the report: kCheckFailed for a wrong result, whose figures are left out,
// and errors of the compiler and the device.
Result<GemmsReport> measure_gemms(const BenchCommand& command,
                                  const std::vector<measure::GemmCase>& cases, Terminal& terminal);

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
