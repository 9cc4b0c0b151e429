// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/bench_report.h"
#include "cli/report/html_page.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// The clock that tensor cores' ceilings are drawn at.
struct RoofClock {
  double megahertz = 0.0;
  std::string source;  // what this clock is: "the GPU's highest clock"
};
// Returns the highest clock that the GPU is set to allow, else the highest one that was measured;
// none if no clock is known.
std::optional<RoofClock> roof_clock(const BenchRun& run, const std::vector<BenchLine>& lines);

// Returns the arithmetic operations of a kernel for each of its least bytes.
double intensity(const BenchLine& line);
// Returns whether the roofline has a place for the kernel.
bool is_on_roofline(const BenchLine& line);

// Draws the kernels that multiply, each at its arithmetic intensity and the rate that it achieves.
// Above them are the ceilings: the copy bandwidth of this run, and the tensor cores' peak at a
// clock.
void draw_roofline(Element parent, const std::vector<BenchLine>& lines,
                   const std::optional<RoofClock>& clock);

}  // namespace moejit::cli
