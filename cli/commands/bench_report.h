// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/bench_run.h"
#include "compiler/compiler.h"
#include "runtime/measure/measure_layer.h"

#include <optional>
#include <string>

namespace moejit::cli {

// The results of `moejit bench` on a layer.
struct BenchReport {
  BenchRun run;
  compiler::CallRows rows;
  double copy_bytes_per_second = 0.0;
  measure::KernelTimes times;
  measure::HotRun forward;
  std::optional<measure::HotRun> step;  // forward and backward, if both were measured
};

std::string bench_table(const compiler::LayerPlan& plan, const BenchReport& report);
std::string bench_json(const compiler::LayerPlan& plan, const BenchReport& report);

}  // namespace moejit::cli
