// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/bench_line.h"
#include "cli/report/element.h"
#include "cli/report/svg_plot.h"

#include <string_view>
#include <vector>

namespace moejit::cli {

// A drawing with a row for each kernel, below a heading for each phase, and panels side by side.
class KernelRows {
 public:
  // Begins the drawing and writes the kernels' names. The lines must outlive it.
  KernelRows(Element parent, const std::vector<BenchLine>& lines, std::string_view description);

  // Places of the two panels.
  static constexpr double kLeftBegin = 292.0, kLeftEnd = 590.0;
  static constexpr double kRightBegin = 676.0, kRightEnd = 890.0;

  // Adds the grid of a panel, from begin to end of the scale.
  void add_grid(const Scale& scale, std::string_view label, int most_ticks) const;
  // Adds a vertical line at a value that bars are compared with.
  void add_reference(double x) const;

  Element svg() const { return svg_; }
  double bottom() const;
  // Returns the middle of a kernel's row.
  double y_of(std::size_t line) const { return y_[line]; }

 private:
  std::vector<double> y_;
  std::vector<double> headings_y_;
  Element svg_;
};

// Return the style class of a kernel's marks. Kernels that multiply on the tensor cores have
// another color than the others.
std::string_view hot_css(const BenchLine& line);
std::string_view cool_css(const BenchLine& line);

// Adds the legend of a drawing: a filled box for hot and an outlined box for cool. Both colors are
// shown if kernels of both kinds are there.
void add_kernel_legend(Element svg, const std::vector<BenchLine>& lines);

// Draws the time of each kernel, hot and cool, and its share of what the GPU can do.
void draw_times(Element parent, const std::vector<BenchLine>& lines);

// Draws the clock of each kernel, hot and cool, and its power while hot.
void draw_kernel_clocks(Element parent, const std::vector<BenchLine>& lines);
// Returns whether any clock or power is known.
bool tells_clock_or_power(const std::vector<BenchLine>& lines);

}  // namespace moejit::cli
