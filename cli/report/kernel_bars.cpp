// SPDX-License-Identifier: Apache-2.0
// Draws the two figures that have a row for each kernel.
#include "cli/report/kernel_rows.h"
#include "cli/report/report_text.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

constexpr double kBarHeight = 9.0;

// Returns the largest number that is known, or 1.
double largest(const std::vector<BenchLine>& lines, auto number) {
  double most = 0.0;
  for (const BenchLine& line : lines) most = std::max(most, known(number(line)).value_or(0.0));
  return most > 0.0 ? most : 1.0;
}

// Draws two bars, hot launches above cool ones. Unknown numbers have no bar.
void draw_bars(Element svg, const BenchLine& line, const Scale& scale, double y,
               std::optional<double> hot, std::optional<double> cool) {
  const auto draw = [&](std::optional<double> value, double top, std::string_view css) {
    if (!value) return;
    add_box(svg, {scale.begin, top}, scale.at(scale.nearest(*value)) - scale.begin, kBarHeight,
            css);
  };
  draw(hot, y - kBarHeight - 1.0, fmt::format("{} bar", hot_css(line)));
  draw(cool, y + 1.0, fmt::format("{} bar", cool_css(line)));
}

void draw_time(const KernelRows& rows, const BenchLine& line, const Scale& scale, double y) {
  const auto hot = known(line.hot.microseconds), cool = known(line.cool.microseconds);
  draw_bars(rows.svg(), line, scale, y, hot, cool);
  const double end = scale.at(scale.nearest(std::max(hot.value_or(0.0), cool.value_or(0.0))));
  add_label(rows.svg(), {end + 6.0, y + 4.0}, known_time_text(hot));
}

// Draws the share of the tensor cores, or of the copy bandwidth, which only cool launches have: hot
// ones may read from caches.
void draw_share(const KernelRows& rows, const BenchLine& line, const Scale& scale, double y) {
  const auto hot = line.multiplies() ? known(line.util_hot()) : std::nullopt;
  const auto cool = known(line.multiplies() ? line.util_cool() : line.share_of_copy());
  draw_bars(rows.svg(), line, scale, y, hot, cool);
  const std::string text = line.multiplies()
                               ? known_text(hot, "{:.3f}")
                               : fmt::format("{} of copy", known_text(cool, "{:.2f}"));
  add_label(rows.svg(), {scale.end + 12.0, y + 4.0}, text);
}

}  // namespace

void draw_times(Element parent, const std::vector<BenchLine>& lines) {
  const KernelRows rows(parent, lines, "Time of each kernel, and its share of what the GPU can do");
  const auto longer = [](const BenchLine& line) {
    return std::max(line.hot.microseconds, line.cool.microseconds);
  };
  const auto share = [](const BenchLine& line) {
    return line.multiplies() ? std::max(line.util_hot(), line.util_cool()) : line.share_of_copy();
  };
  const Scale times = rounded({.low = 0.0,
                               .high = largest(lines, longer),
                               .begin = KernelRows::kLeftBegin,
                               .end = KernelRows::kLeftEnd},
                              5);
  const Scale shares{.low = 0.0,
                     .high = std::clamp(largest(lines, share), 1.0, 2.0),
                     .begin = KernelRows::kRightBegin,
                     .end = KernelRows::kRightEnd};
  rows.add_grid(times, "time of a launch, \u00B5s", 5);
  rows.add_grid(shares, "share of copy bandwidth, or of tensor cores", 5);
  rows.add_reference(shares.at(1.0));
  add_kernel_legend(rows.svg(), lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    draw_time(rows, lines[i], times, rows.y_of(i));
    draw_share(rows, lines[i], shares, rows.y_of(i));
  }
}

bool tells_clock_or_power(const std::vector<BenchLine>& lines) {
  return std::ranges::any_of(lines, [](const BenchLine& line) {
    return known(line.cool.megahertz) || known(line.hot.megahertz) || line.hot.gpu.mean_watts;
  });
}

void draw_kernel_clocks(Element parent, const std::vector<BenchLine>& lines) {
  const KernelRows rows(parent, lines, "Clock and power of each kernel");
  const auto clock = [](const BenchLine& line) {
    return std::max(line.hot.megahertz, line.cool.megahertz);
  };
  const auto power = [](const BenchLine& line) { return line.hot.gpu.mean_watts.value_or(0.0); };
  const Scale clocks = rounded({.low = 0.0,
                                .high = largest(lines, clock),
                                .begin = KernelRows::kLeftBegin,
                                .end = KernelRows::kLeftEnd},
                               5);
  const Scale powers = rounded({.low = 0.0,
                                .high = largest(lines, power),
                                .begin = KernelRows::kRightBegin,
                                .end = KernelRows::kRightEnd},
                               5);
  rows.add_grid(clocks, "clock of the SMs, MHz", 5);
  rows.add_grid(powers, "mean power while hot, W", 5);
  add_kernel_legend(rows.svg(), lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const BenchLine& line = lines[i];
    const double y = rows.y_of(i);
    draw_bars(rows.svg(), line, clocks, y, known(line.hot.megahertz), known(line.cool.megahertz));
    const double end = clocks.at(clocks.nearest(std::max(clock(line), 0.0)));
    add_label(rows.svg(), {end + 6.0, y + 4.0}, known_text(known(line.hot.megahertz), "{:.0f}"));
    const auto watts = known(power(line));
    draw_bars(rows.svg(), line, powers, y, watts, std::nullopt);
    add_label(rows.svg(), {powers.at(watts.value_or(0.0)) + 6.0, y + 4.0},
              known_text(watts, "{:.0f}"));
  }
}

}  // namespace moejit::cli
