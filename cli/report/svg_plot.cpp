// SPDX-License-Identifier: Apache-2.0
#include "cli/report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

// Returns the smallest of 1, 2 and 5 times powers of ten that gives at most `most` steps.
double step_of(double span, int most) {
  const double least = span / std::max(most, 1);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1.0 - 1e-9)) return factor * power;
  return 10.0 * power;
}

std::vector<double> log_ticks(const Scale& scale, int most) {
  const double decades = std::log10(scale.high / scale.low);
  std::vector<double> factors = {1.0};
  if (3.0 * decades <= most) factors = {1.0, 2.0, 5.0};
  std::vector<double> ticks;
  for (double power = std::floor(std::log10(scale.low)); power <= std::log10(scale.high); ++power)
    for (const double factor : factors) {
      const double tick = factor * std::pow(10.0, power);
      if (tick >= scale.low * (1.0 - 1e-9) && tick <= scale.high * (1.0 + 1e-9))
        ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

double Scale::at(double value) const {
  const double share =
      is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return begin + share * (end - begin);
}

double Scale::nearest(double value) const { return std::clamp(value, low, high); }

std::vector<double> ticks_of(const Scale& scale, int most) {
  if (scale.is_log) return log_ticks(scale, most);
  const double step = step_of(scale.high - scale.low, most);
  std::vector<double> ticks;
  for (double i = std::ceil(scale.low / step - 1e-9); i * step <= scale.high + 1e-9 * step; ++i)
    ticks.push_back(i * step + 0.0);  // no -0
  return ticks;
}

Scale rounded(const Scale& scale, int most_ticks) {
  Scale wide = scale;
  const double step = step_of(scale.high - scale.low, most_ticks);
  wide.low = step * std::floor(scale.low / step + 1e-9);
  wide.high = step * std::ceil(scale.high / step - 1e-9);
  return wide;
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  const auto is_whole = [&](double factor) {
    return std::ranges::all_of(ticks, [&](double tick) {
      return std::abs(tick * factor - std::round(tick * factor)) < 1e-6 * factor;
    });
  };
  int digits = 0;
  while (digits < 6 && !is_whole(std::pow(10.0, digits))) ++digits;
  std::vector<std::string> texts;
  for (const double tick : ticks) texts.push_back(fmt::format("{:.{}f}", tick, digits));
  return texts;
}

Element add_drawing(Element parent, double width, double height, std::string_view description) {
  return parent.add("svg")
      .set("viewBox", std::string_view(fmt::format("0 0 {:.0f} {:.0f}", width, height)))
      .set("role", "img")
      .set("aria-label", description);
}

Element add_line(Element svg, Point from, Point to, std::string_view css) {
  return svg.add("line")
      .set("class", css)
      .set("x1", from.x)
      .set("y1", from.y)
      .set("x2", to.x)
      .set("y2", to.y);
}

Element add_box(Element svg, Point corner, double width, double height, std::string_view css) {
  return svg.add("rect")
      .set("class", css)
      .set("x", corner.x)
      .set("y", corner.y)
      .set("width", width)
      .set("height", height);
}

Element add_label(Element svg, Point at, std::string_view text, std::string_view css) {
  Element label = svg.add("text", text).set("x", at.x).set("y", at.y);
  if (!css.empty()) label.set("class", css);
  return label;
}

Element add_circle(Element svg, Point center, double radius, std::string_view css) {
  return svg.add("circle")
      .set("class", css)
      .set("cx", center.x)
      .set("cy", center.y)
      .set("r", radius);
}

Element add_diamond(Element svg, Point center, double radius, std::string_view css) {
  const auto [x, y] = center;
  return svg.add("path")
      .set("class", css)
      .set("d", std::string_view(fmt::format("M{:.2f} {:.2f}l{r} {r}l-{r} {r}l-{r} -{r}z", x,
                                             y - radius, fmt::arg("r", radius))));
}

Element add_arrowhead(Element svg, Point center, double radius, std::string_view css) {
  const auto [x, y] = center;
  return svg.add("path")
      .set("class", css)
      .set("d", std::string_view(fmt::format("M{:.2f} {:.2f}l{} {}l-{} {}z", x - radius, y - radius,
                                             2 * radius, radius, 2 * radius, radius)));
}

Element add_polyline(Element svg, const std::vector<Point>& points, std::string_view css) {
  std::string text;
  for (const Point& point : points)
    text += fmt::format("{}{:.2f},{:.2f}", text.empty() ? "" : " ", point.x, point.y);
  return svg.add("polyline").set("class", css).set("points", std::string_view(text));
}

void add_x_axis(Element svg, const Axis& axis) {
  const std::vector<double> ticks = ticks_of(axis.scale, axis.most_ticks);
  const std::vector<std::string> texts = tick_texts(ticks);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const double x = axis.scale.at(ticks[i]);
    add_line(svg, {x, axis.begin}, {x, axis.end}, "grid");
    add_label(svg, {x, axis.end + 16.0}, texts[i], "soft middle");
  }
  add_label(svg, {0.5 * (axis.scale.begin + axis.scale.end), axis.end + 34.0}, axis.label,
            "soft middle");
}

void add_y_axis(Element svg, const Axis& axis) {
  const std::vector<double> ticks = ticks_of(axis.scale, axis.most_ticks);
  const std::vector<std::string> texts = tick_texts(ticks);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const double y = axis.scale.at(ticks[i]);
    add_line(svg, {axis.begin, y}, {axis.end, y}, "grid");
    add_label(svg, {axis.begin - 8.0, y + 4.0}, texts[i], "soft end");
  }
  add_label(svg, {axis.begin, std::min(axis.scale.begin, axis.scale.end) - 10.0}, axis.label,
            "soft");
}

}  // namespace moejit::cli
