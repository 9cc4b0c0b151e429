// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "runtime/engine.h"
#include "runtime/measure/gpu_monitor.h"
#include "runtime/trial/open_target.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moejit::cli {

// How and on what a run of `moejit bench` measured, so that it can be repeated and judged.
struct BenchRun {
  std::string command_line;
  std::string date;    // UTC, "2026-11-21T12:34:56Z"
  std::string target;  // "cuda:sm_90a on NVIDIA H200"
  std::string gpu;     // "NVIDIA H200"
  int32_t sm_count = 0;
  std::string cuda_version;  // that the driver knows
  measure::GpuSettings settings;
  int32_t repeat = 0;        // cool launches of a kernel
  double hot_seconds = 0.0;  // least time of a kernel's launches
  runtime::EngineCounters counters;
};

// Checks the ranges of repetitions and seconds, or returns kUsage.
Result<void> check_bench_options(const BenchCommand& command);

// Opens the GPU that the command asks for. kUnsupported for the simulator.
Result<trial::OpenedTarget> open_bench_gpu(const BenchCommand& command);

// Returns the description of a run, without the counters. `monitor` may be null.
BenchRun describe_run(const BenchCommand& command, const trial::OpenedTarget& target,
                      const measure::GpuMonitor* monitor);

// Adds the members of a report that say how it was made, under their names in docs/cli.md.
void add_run(nlohmann::ordered_json& json, const BenchRun& run);
// Adds what a monitor saw during hot launches; nothing without a monitor.
void add_samples(nlohmann::ordered_json& json, const measure::GpuSamples& gpu);
// Returns the mean power, or "-".
std::string watts_text(const measure::GpuSamples& gpu);

}  // namespace moejit::cli
