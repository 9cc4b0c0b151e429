// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_line.h"

#include "runtime/measure/sm_clock.h"

#include <cstddef>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

double share_of_peak(const BenchLine& line, const measure::Cycles& taken) {
  return measure::utilization(line.work.multiply_adds, line.sm_count,
                              measure::peak_multiply_adds(*line.kernel), taken);
}

}  // namespace

double BenchLine::bytes_per_second() const {
  return static_cast<double>(work.min_bytes) / cool.microseconds * 1e6;
}

double BenchLine::share_of_copy() const { return bytes_per_second() / copy_bytes_per_second; }

double BenchLine::flops(double microseconds) const {
  return 2.0 * static_cast<double>(work.multiply_adds) / microseconds * 1e6;
}

double BenchLine::util_cool() const {
  return share_of_peak(*this, {cool.microseconds, cool.megahertz});
}

double BenchLine::util_hot() const {
  return share_of_peak(*this, {hot.microseconds, hot.megahertz});
}

std::vector<BenchLine> bench_lines(const compiler::Plan& plan, const BenchReport& report) {
  std::vector<BenchLine> lines;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    lines.push_back({.kernel = &plan.kernels[i],
                     .cool = report.times.cool[i],
                     .hot = report.times.hot[i],
                     .work = count_work(plan.kernels[i], report.rows),
                     .copy_bytes_per_second = report.copy_bytes_per_second,
                     .sm_count = report.run.sm_count});
  return lines;
}

std::string rows_text(const compiler::CallRows& rows) {
  std::string text;
  if (rows.tokens > 0) text += fmt::format(", {} tokens", rows.tokens);
  if (rows.padded > 0)
    text += fmt::format(", {} routed rows, {} with pad rows", rows.routed, rows.padded);
  return text;
}

}  // namespace moejit::cli
