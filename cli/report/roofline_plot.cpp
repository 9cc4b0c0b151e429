// SPDX-License-Identifier: Apache-2.0
#include "cli/report/roofline_plot.h"

#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"
#include "runtime/measure/sm_clock.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numbers>
#include <set>

namespace moejit::cli {
namespace {

constexpr double kRooflineHeight = 470.0;
constexpr double kRooflineLeft = 64.0, kRooflineRight = 770.0, kRooflineTop = 40.0,
                 kRooflineBottom = 420.0;
constexpr double kLabelX = 800.0, kLabelHeight = 16.0;
constexpr std::size_t kRooflineMostLabel = 28;  // characters

// The tensor cores' peak in one format.
struct Ceiling {
  int64_t multiply_adds = 0;  // of an SM in a cycle
  double tera = 0.0;          // operations per second, times 1e-12
};

struct Roofline {
  Scale x, y;
  double copy_bytes_per_second = 0.0;
  std::vector<Ceiling> ceilings;  // the highest first; none if no clock is known
};

double tera_of(const BenchLine& line, double microseconds) {
  return line.flops(microseconds) * 1e-12;
}

std::vector<Ceiling> ceilings_of(const std::vector<BenchLine>& lines,
                                 const std::optional<RoofClock>& clock) {
  std::set<int64_t, std::greater<>> peaks;
  for (const BenchLine& line : lines)
    if (is_on_roofline(line)) peaks.insert(measure::peak_multiply_adds(*line.kernel));
  std::vector<Ceiling> ceilings;
  for (const int64_t peak : peaks)
    if (clock && lines.front().sm_count > 0)
      ceilings.push_back({peak, 2.0 * static_cast<double>(peak) * lines.front().sm_count *
                                    clock->megahertz * 1e-6});
  return ceilings;
}

Roofline roofline_of(const std::vector<BenchLine>& lines, const std::optional<RoofClock>& clock) {
  Roofline roofline{.copy_bytes_per_second = lines.front().copy_bytes_per_second,
                    .ceilings = ceilings_of(lines, clock)};
  Scale x{.low = 1e300, .high = 0.0, .begin = kRooflineLeft, .end = kRooflineRight, .is_log = true};
  Scale y{.low = 1e300, .high = 0.0, .begin = kRooflineBottom, .end = kRooflineTop, .is_log = true};
  const auto include = [](Scale& scale, double value) {
    scale.low = std::min(scale.low, 0.6 * value);
    scale.high = std::max(scale.high, 1.6 * value);
  };
  for (const BenchLine& line : lines) {
    if (!is_on_roofline(line)) continue;
    include(x, intensity(line));
    include(y, tera_of(line, line.cool.microseconds));
    include(y, tera_of(line, line.hot.microseconds));
  }
  for (const Ceiling& ceiling : roofline.ceilings) {
    include(y, ceiling.tera);
    if (known(roofline.copy_bytes_per_second))
      include(x, ceiling.tera * 1e12 / roofline.copy_bytes_per_second);
  }
  roofline.x = x;
  roofline.y = y;
  return roofline;
}

std::string_view format_name(int64_t peak) { return peak == 4096 ? "e4m3" : "bf16"; }

// Draws the line of the copy bandwidth, as far as it lies in the drawing and below `most_tera`.
void draw_bandwidth(Element svg, const Roofline& roofline, double most_tera) {
  if (!known(roofline.copy_bytes_per_second)) return;
  const double slope = roofline.copy_bytes_per_second * 1e-12;  // tera-operations for 1 of x
  const double from = std::max(roofline.x.low, roofline.y.low / slope);
  const double to = std::min(roofline.x.high, most_tera / slope);
  if (from >= to) return;
  const Point start{roofline.x.at(from), roofline.y.at(from * slope)};
  const Point end{roofline.x.at(to), roofline.y.at(to * slope)};
  add_line(svg, start, end, "roof copy");
  const double angle = std::atan2(end.y - start.y, end.x - start.x) * 180.0 / std::numbers::pi;
  add_label(svg, {}, fmt::format("copy: {:.0f} GB/s", roofline.copy_bytes_per_second * 1e-9),
            "middle")
      .set("transform",
           std::string_view(fmt::format("translate({:.2f} {:.2f}) rotate({:.2f}) translate(0 -7)",
                                        0.5 * (start.x + end.x), 0.5 * (start.y + end.y), angle)));
}

void draw_ceilings(Element svg, const Roofline& roofline, const std::optional<RoofClock>& clock) {
  bool is_first = true;
  for (const Ceiling& ceiling : roofline.ceilings) {
    const double slope = roofline.copy_bytes_per_second * 1e-12;
    const double knee = slope > 0.0 ? roofline.x.nearest(ceiling.tera / slope) : roofline.x.low;
    const double y = roofline.y.at(ceiling.tera);
    add_line(svg, {roofline.x.at(knee), y}, {kRooflineRight, y},
             is_first ? "roof ceiling" : "roof ceiling second");
    add_label(svg, {kRooflineRight, y - 7.0},
              fmt::format("tensor cores, {}: {:.0f} TFLOP/s at {:.0f} MHz",
                          format_name(ceiling.multiply_adds), ceiling.tera, clock->megahertz),
              "end");
    is_first = false;
  }
}

// Draws both measurements of the kernels, and their names beside the drawing. Each name is at the
// height of its marks, as far as the names above leave room.
void draw_kernels(Element svg, const Roofline& roofline, const std::vector<BenchLine>& lines) {
  std::vector<const BenchLine*> order;
  for (const BenchLine& line : lines)
    if (is_on_roofline(line)) order.push_back(&line);
  std::ranges::stable_sort(order, std::ranges::greater(), [](const BenchLine* line) {
    return line->flops(line->hot.microseconds);
  });
  double free_y = kRooflineTop;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const BenchLine& line = *order[i];
    const double x = roofline.x.at(intensity(line));
    const double hot_y = roofline.y.at(tera_of(line, line.hot.microseconds));
    const double cool_y = roofline.y.at(tera_of(line, line.cool.microseconds));
    const double lowest =
        kRooflineBottom - kLabelHeight * static_cast<double>(order.size() - 1 - i);
    const double label_y = std::min(std::max(hot_y, free_y), lowest);
    free_y = label_y + kLabelHeight;
    add_polyline(svg, {{x, hot_y}, {kRooflineRight + 6.0, label_y}, {kLabelX - 6.0, label_y}},
                 "leader");
    add_line(svg, {x, hot_y}, {x, cool_y}, "leader");
    add_circle(svg, {x, cool_y}, 4.5, "tensor-cool mark");
    add_diamond(svg, {x, hot_y}, 5.0, "tensor mark");
    add_label(svg, {kLabelX, label_y + 4.0}, shortened(line.kernel->operation, kRooflineMostLabel),
              "code");
  }
}

}  // namespace

std::optional<RoofClock> roof_clock(const BenchRun& run, const std::vector<BenchLine>& lines) {
  if (run.settings.most_megahertz && *run.settings.most_megahertz > 0)
    return RoofClock{static_cast<double>(*run.settings.most_megahertz), "the GPU's highest clock"};
  double most = 0.0;
  for (const BenchLine& line : lines)
    for (const double megahertz : {line.cool.megahertz, line.hot.megahertz})
      most = std::max(most, known(megahertz).value_or(0.0));
  if (most == 0.0) return std::nullopt;
  return RoofClock{most, "the highest clock of this run"};
}

double intensity(const BenchLine& line) {
  return 2.0 * static_cast<double>(line.work.multiply_adds) /
         static_cast<double>(line.work.min_bytes);
}

bool is_on_roofline(const BenchLine& line) {
  return known(intensity(line)) && known(line.hot.microseconds) && known(line.cool.microseconds);
}

void draw_roofline(Element parent, const std::vector<BenchLine>& lines,
                   const std::optional<RoofClock>& clock) {
  const Roofline roofline = roofline_of(lines, clock);
  Element svg = add_drawing(parent, kDrawingWidth, kRooflineHeight,
                            "Roofline: arithmetic intensity and achieved operations per second");
  add_x_axis(svg, {.scale = roofline.x,
                   .begin = kRooflineTop,
                   .end = kRooflineBottom,
                   .label = "arithmetic intensity, FLOP for each of the least bytes"});
  add_y_axis(
      svg,
      {.scale = roofline.y, .begin = kRooflineLeft, .end = kRooflineRight, .label = "TFLOP/s"});
  draw_bandwidth(svg, roofline,
                 roofline.ceilings.empty() ? roofline.y.high : roofline.ceilings.front().tera);
  draw_ceilings(svg, roofline, clock);
  draw_kernels(svg, roofline, lines);
  add_diamond(svg, {kLabelX, 16.0}, 5.0, "tensor");
  add_label(svg, {kLabelX + 12.0, 20.0}, "hot", "soft");
  add_circle(svg, {kLabelX + 60.0, 16.0}, 4.5, "tensor-cool");
  add_label(svg, {kLabelX + 72.0, 20.0}, "cool", "soft");
}

}  // namespace moejit::cli
