// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/tuning_use.h"
#include "compiler/plan.h"
#include "compiler/work.h"
#include "runtime/engine.h"
#include "runtime/measure/gpu_monitor.h"
#include "runtime/trial/inputs.h"
#include "runtime/trial/measure_trial.h"

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Adds the members of a report that say how it was made, under their names in docs/cli.md.
void add_run(nlohmann::ordered_json& json, const BenchRun& run);
// Adds what a monitor saw during hot launches; nothing without a monitor.
void add_samples(nlohmann::ordered_json& json, const measure::GpuSamples& gpu);
// Returns the mean power, or "-".
std::string watts_text(const measure::GpuSamples& gpu);

// The results of `moejit bench` on a layer or an operation.
struct BenchReport {
  BenchRun run;
  compiler::CallRows rows;
  std::optional<trial::RandomInputs> random;  // as routed_at_random() returns it
  double copy_bytes_per_second = 0.0;
  double read_bytes_per_second = 0.0;
  trial::KernelTimes times;
  std::optional<measure::HotRun> forward;        // of a layer: all of its kernels
  std::optional<measure::HotRun> forward_graph;  // the same, recorded into CUDA graphs
  std::optional<measure::HotRun> step;           // forward and backward, if both were measured
  std::optional<TuningUse> tuning;               // if there were records
};

std::string bench_table(const compiler::Plan& plan, const BenchReport& report);
std::string bench_json(const compiler::Plan& plan, const BenchReport& report);

// The measurements of one kernel, and what follows from them.
struct BenchLine {
  const compiler::KernelPlan* kernel = nullptr;
  measure::CoolRun cool;
  measure::HotRun hot;
  compiler::Work work;
  double copy_bytes_per_second = 0.0;
  int32_t sm_count = 0;

  bool multiplies() const { return work.multiply_adds > 0; }
  double bytes_per_second() const;
  double share_of_copy() const;
  double flops(double microseconds) const;
  // Return the share of what the matrix units can do in the cycles that the kernel took.
  double util_cool() const;
  double util_hot() const;
};

// Returns a line for each kernel of the plan, which must outlive them.
std::vector<BenchLine> bench_lines(const compiler::Plan& plan, const BenchReport& report);

// A figure of a kernel, and its text in a table.
struct BenchFigure {
  double value = 0.0;  // 0: not known
  std::string text;
};
// The columns of tables, and a kernel's figures for them; those from "TFLOP/s cool" on are of
// kernels that multiply.
inline constexpr std::array<std::string_view, 12> kBenchColumns = {
    "cool", "MHz",     "hot",          "MHz",  "W",           "least bytes",
    "GB/s", "of copy", "TFLOP/s cool", "util", "TFLOP/s hot", "util"};
std::vector<BenchFigure> bench_figures(const BenchLine& line);

// Returns for example ", 64 tokens, 112 routed rows, 176 with pad rows".
std::string rows_text(const compiler::CallRows& rows);

}  // namespace moejit::cli
