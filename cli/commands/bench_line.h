// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/bench_report.h"
#include "compiler/work.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

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

// Returns for example ", 64 tokens, 112 routed rows, 176 with pad rows".
std::string rows_text(const compiler::CallRows& rows);

}  // namespace moejit::cli
