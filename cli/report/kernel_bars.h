// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/bench_report.h"
#include "cli/report/html_page.h"

#include <vector>

namespace moejit::cli {

// Draw bars for each kernel, below a heading for each phase: hot launches above cool ones. Kernels
// that multiply on the tensor cores have another color than the others.

// Draws the time of each kernel, and its share of what the GPU can do.
void draw_times(Element parent, const std::vector<BenchLine>& lines);

// Draws the clock of each kernel, and its power while hot.
void draw_kernel_clocks(Element parent, const std::vector<BenchLine>& lines);
// Returns whether any clock or power is known.
bool tells_clock_or_power(const std::vector<BenchLine>& lines);

}  // namespace moejit::cli
