// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "cli/execution/open_target.h"
#include "runtime/engine.h"
#include "runtime/measure/gpu_monitor.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moejit::cli {

// How and on what a run of `moejit bench` measured: what it takes to repeat and to judge it.
struct BenchRun {
  std::string command_line;
  std::string date;    // UTC, "2026-11-21T12:34:56Z"
  std::string target;  // "cuda:sm_90a on NVIDIA H200"
  std::string gpu;     // "NVIDIA H200"
  int32_t sm_count = 0;
  std::string cuda_version;  // that the driver knows
  measure::GpuSettings settings;
  int32_t repeat = 0;        // cool launches of a kernel
  double hot_seconds = 0.0;  // of launches of a kernel, at least
  runtime::EngineCounters counters;
};

// Repetitions and seconds within their ranges, or kUsage.
Result<void> check_bench_options(const BenchCommand& command);

// The GPU that the command asks for. kUnsupported for the simulator.
Result<OpenedTarget> open_bench_gpu(const BenchCommand& command);

// All but the counters. `monitor` may be null.
BenchRun describe_run(const BenchCommand& command, const OpenedTarget& target,
                      const measure::GpuMonitor* monitor);

// The members of a report that say how it was made, under their names in docs/cli.md.
void add_run(nlohmann::ordered_json& json, const BenchRun& run);
// What a monitor saw during hot launches, and nothing where there was none.
void add_samples(nlohmann::ordered_json& json, const measure::GpuSamples& gpu);
// Mean power, or "-".
std::string watts_text(const measure::GpuSamples& gpu);

}  // namespace moejit::cli
