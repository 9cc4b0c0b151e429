// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/tensor_check.h"
#include "runtime/engine.h"
#include "runtime/measure/kernel_timer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// What `moejit run` reports at its end.
struct RunReport {
  std::string target;  // and why it was chosen
  int64_t tokens = 0;
  int64_t rows = 0;  // offs[E]
  uint32_t status = 0;
  std::vector<measure::KernelTimer::Sample> times;
  bool is_checked = false;
  std::vector<TensorCheck> checks;
  runtime::EngineCounters counters;
  std::string output;  // file, may be empty
};

// Returns a sentence about the status word; empty if no bit is set.
std::string status_text(uint32_t status);

// Returns a table of kernels, or JSON; both end with the counters of the engine.
std::string text_of(const compiler::LayerPlan& plan, const RunReport& report, int32_t width = 0);
std::string json_of(const compiler::LayerPlan& plan, const RunReport& report);

}  // namespace moejit::cli
