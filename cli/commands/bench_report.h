// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/bench_run.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "compiler/compiler.h"
#include "runtime/measure/measure_layer.h"
#include "runtime/trial/random_layer_inputs.h"

#include <optional>
#include <string>

namespace moejit::cli {

// The results of `moejit bench` on a layer or an operation.
struct BenchReport {
  BenchRun run;
  compiler::CallRows rows;
  std::optional<trial::RandomRouting> routing;  // none where no rows belong to experts
  double copy_bytes_per_second = 0.0;
  measure::KernelTimes times;
  std::optional<measure::HotRun> forward;  // of a layer: all of its kernels
  std::optional<measure::HotRun> step;     // forward and backward, if both were measured
  std::optional<TuningUse> tuning;         // if there were records
};

std::string bench_table(const compiler::Plan& plan, const BenchReport& report);
std::string bench_json(const compiler::Plan& plan, const BenchReport& report);

}  // namespace moejit::cli
