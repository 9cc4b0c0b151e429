// SPDX-License-Identifier: Apache-2.0
#include "cli/report/kernel_rows.h"

#include "cli/report/report_text.h"

#include <algorithm>

namespace moejit::cli {
namespace {

constexpr double kKernelRowHeight = 32.0, kKernelHeadingHeight = 28.0;
constexpr double kKernelTop = 36.0;           // above the first row: the legend
constexpr std::size_t kKernelMostLabel = 38;  // characters

}  // namespace

KernelRows::KernelRows(Element parent, const std::vector<BenchLine>& lines,
                       std::string_view description)
    : svg_(parent) {
  double y = kKernelTop;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 || lines[i].kernel->phase != lines[i - 1].kernel->phase) {
      headings_y_.push_back(y + 18.0);
      y += kKernelHeadingHeight;
    }
    y_.push_back(y + 0.5 * kKernelRowHeight);
    y += kKernelRowHeight;
  }
  svg_ = add_drawing(parent, kDrawingWidth, y + 52.0, description);
  std::size_t heading = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const compiler::KernelPlan& kernel = *lines[i].kernel;
    if (i == 0 || kernel.phase != lines[i - 1].kernel->phase)
      add_label(svg_, {8.0, headings_y_[heading++]}, kernel.phase, "bold soft");
    add_label(svg_, {20.0, y_[i] + 4.0}, shortened(kernel.operation, kKernelMostLabel),
              "code kernel");
  }
}

double KernelRows::bottom() const {
  return (y_.empty() ? kKernelTop : y_.back()) + 0.5 * kKernelRowHeight;
}

void KernelRows::add_grid(const Scale& scale, std::string_view label, int most_ticks) const {
  add_x_axis(svg_, {.scale = scale,
                    .begin = kKernelTop,
                    .end = bottom(),
                    .label = label,
                    .most_ticks = most_ticks});
  add_line(svg_, {scale.begin, kKernelTop}, {scale.begin, bottom()}, "axis");
}

void KernelRows::add_reference(double x) const {
  add_line(svg_, {x, kKernelTop}, {x, bottom()}, "reference");
}

std::string_view hot_css(const BenchLine& line) { return line.multiplies() ? "tensor" : "hot"; }
std::string_view cool_css(const BenchLine& line) {
  return line.multiplies() ? "tensor-cool" : "cool";
}

void add_kernel_legend(Element svg, const std::vector<BenchLine>& lines) {
  double x = KernelRows::kLeftBegin;
  const auto add = [&](std::string_view css, std::string_view text, double width) {
    add_box(svg, {x, 6.0}, 22.0, 10.0, css);
    add_label(svg, {x + 28.0, 15.0}, text, "soft");
    x += width;
  };
  if (!std::ranges::all_of(lines, &BenchLine::multiplies)) {
    add("hot", "hot", 62.0);
    add("cool", "cool", 82.0);
  }
  if (std::ranges::any_of(lines, &BenchLine::multiplies)) {
    add("tensor", "hot, on tensor cores", 172.0);
    add("tensor-cool", "cool, on tensor cores", 172.0);
  }
}

}  // namespace moejit::cli
