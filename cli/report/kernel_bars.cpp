// SPDX-License-Identifier: Apache-2.0
#include "cli/report/kernel_bars.h"

#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

constexpr double kBarHeight = 9.0, kKernelRowHeight = 32.0, kKernelHeadingHeight = 28.0;
constexpr double kKernelTop = 36.0;           // above the first row: the legend
constexpr std::size_t kKernelMostLabel = 38;  // characters

// The two bars of a kernel, and the figure beside them. Numbers that are not known have no bar.
struct Bars {
  std::optional<double> hot, cool;
  std::string text;
};

// A column of bars with an axis below.
struct Panel {
  double begin = 0.0, end = 0.0;
  std::string_view label;
  Bars (*bars_of)(const BenchLine& line) = nullptr;
  bool is_share = false;  // then a line stands at 1, and figures at the panel's end
};

Scale scale_of(const Panel& panel, const std::vector<BenchLine>& lines) {
  double most = 0.0;
  for (const BenchLine& line : lines) {
    const Bars bars = panel.bars_of(line);
    most = std::max({most, bars.hot.value_or(0.0), bars.cool.value_or(0.0)});
  }
  const Scale scale{
      .low = 0.0, .high = most > 0.0 ? most : 1.0, .begin = panel.begin, .end = panel.end};
  if (!panel.is_share) return rounded(scale, 5);
  return {
      .low = 0.0, .high = std::clamp(scale.high, 1.0, 2.0), .begin = panel.begin, .end = panel.end};
}

std::string_view hot_css(const BenchLine& line) { return line.multiplies() ? "tensor" : "hot"; }
std::string_view cool_css(const BenchLine& line) {
  return line.multiplies() ? "tensor-cool" : "cool";
}

void draw_bars(Element svg, const BenchLine& line, const Panel& panel, const Scale& scale,
               double y) {
  const Bars bars = panel.bars_of(line);
  const auto draw = [&](std::optional<double> value, double top, std::string_view css) {
    if (!value) return;
    add_box(svg, {scale.begin, top}, scale.at(scale.nearest(*value)) - scale.begin, kBarHeight,
            fmt::format("{} bar", css));
  };
  draw(bars.hot, y - kBarHeight - 1.0, hot_css(line));
  draw(bars.cool, y + 1.0, cool_css(line));
  const double longer = std::max(bars.hot.value_or(0.0), bars.cool.value_or(0.0));
  const double text_x = panel.is_share ? scale.end + 12.0 : scale.at(scale.nearest(longer)) + 6.0;
  add_label(svg, {text_x, y + 4.0}, bars.text);
}

// Adds a filled box for hot and an outlined box for cool, for each kind of kernel that is there.
void draw_legend(Element svg, const std::vector<BenchLine>& lines, double x) {
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

bool begins_phase(const std::vector<BenchLine>& lines, std::size_t line) {
  return line == 0 || lines[line].kernel->phase != lines[line - 1].kernel->phase;
}

void draw_kernels(Element parent, const std::vector<BenchLine>& lines, std::string_view description,
                  const std::array<Panel, 2>& panels) {
  std::vector<double> rows;  // the middle of each
  double bottom = kKernelTop;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (begins_phase(lines, i)) bottom += kKernelHeadingHeight;
    rows.push_back(bottom + 0.5 * kKernelRowHeight);
    bottom += kKernelRowHeight;
  }
  Element svg = add_drawing(parent, kDrawingWidth, bottom + 52.0, description);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (begins_phase(lines, i))
      add_label(svg, {8.0, rows[i] - 0.5 * kKernelRowHeight - 10.0}, lines[i].kernel->phase,
                "bold soft");
    add_label(svg, {20.0, rows[i] + 4.0}, shortened(lines[i].kernel->operation, kKernelMostLabel),
              "code kernel");
  }
  for (const Panel& panel : panels) {
    const Scale scale = scale_of(panel, lines);
    add_x_axis(svg, {.scale = scale,
                     .begin = kKernelTop,
                     .end = bottom,
                     .label = panel.label,
                     .most_ticks = 5});
    add_line(svg, {scale.begin, kKernelTop}, {scale.begin, bottom}, "axis");
    if (panel.is_share)
      add_line(svg, {scale.at(1.0), kKernelTop}, {scale.at(1.0), bottom}, "reference");
    for (std::size_t i = 0; i < lines.size(); ++i) draw_bars(svg, lines[i], panel, scale, rows[i]);
  }
  draw_legend(svg, lines, panels.front().begin);
}

constexpr double kLeftBegin = 292.0, kLeftEnd = 590.0, kRightBegin = 676.0, kRightEnd = 890.0;

Bars time_bars(const BenchLine& line) {
  const auto hot = known(line.hot.microseconds);
  return {hot, known(line.cool.microseconds), known_time_text(hot)};
}

// Returns the share of the tensor cores, or of the copy bandwidth, which only cool launches have:
// hot ones may read from caches.
Bars share_bars(const BenchLine& line) {
  if (!line.multiplies()) {
    const auto cool = known(line.share_of_copy());
    return {std::nullopt, cool, fmt::format("{} of copy", known_text(cool, "{:.2f}"))};
  }
  const auto hot = known(line.util_hot());
  return {hot, known(line.util_cool()), known_text(hot, "{:.3f}")};
}

Bars clock_bars(const BenchLine& line) {
  const auto hot = known(line.hot.megahertz);
  return {hot, known(line.cool.megahertz), known_text(hot, "{:.0f}")};
}

Bars power_bars(const BenchLine& line) {
  const auto watts = known(line.hot.gpu.mean_watts.value_or(0.0));
  return {watts, std::nullopt, known_text(watts, "{:.0f}")};
}

}  // namespace

void draw_times(Element parent, const std::vector<BenchLine>& lines) {
  draw_kernels(parent, lines, "Time of each kernel, and its share of what the GPU can do",
               {Panel{kLeftBegin, kLeftEnd, "time of a launch, \u00B5s", &time_bars},
                Panel{kRightBegin, kRightEnd, "share of copy bandwidth, or of tensor cores",
                      &share_bars, true}});
}

bool tells_clock_or_power(const std::vector<BenchLine>& lines) {
  return std::ranges::any_of(lines, [](const BenchLine& line) {
    return known(line.cool.megahertz) || known(line.hot.megahertz) || line.hot.gpu.mean_watts;
  });
}

void draw_kernel_clocks(Element parent, const std::vector<BenchLine>& lines) {
  draw_kernels(parent, lines, "Clock and power of each kernel",
               {Panel{kLeftBegin, kLeftEnd, "clock of the SMs, MHz", &clock_bars},
                Panel{kRightBegin, kRightEnd, "mean power while hot, W", &power_bars}});
}

}  // namespace moejit::cli
