// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/measure.h"
#include "compiler/compiler.h"
#include "runtime/engine.h"

#include <cstdint>
#include <string>

namespace moejit::cli {

// What a run of `moejit bench` found, and what it takes to repeat and to judge it.
struct BenchReport {
  std::string command_line;
  std::string date;    // UTC, "2026-11-21T12:34:56Z"
  std::string target;  // "cuda:sm_90a on NVIDIA H200"
  std::string gpu;     // "NVIDIA H200"
  int32_t sm_count = 0;
  std::string cuda_version;  // that the driver knows
  GpuSettings settings;
  int32_t repeat = 0;        // cool launches of a kernel
  double hot_seconds = 0.0;  // of launches of a kernel, at least
  compiler::CallRows rows;
  double copy_bytes_per_second = 0.0;
  KernelTimes times;
  HotRun forward;
  runtime::EngineCounters counters;
};

std::string bench_table(const compiler::Plan& plan, const BenchReport& report);
std::string bench_json(const compiler::Plan& plan, const BenchReport& report);

}  // namespace moejit::cli
