// SPDX-License-Identifier: Apache-2.0
#include "cli/report/step_section.h"

#include "cli/report/html_page.h"
#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"

#include <algorithm>
#include <cmath>

namespace moejit::cli {
namespace {

using compiler::TuningStep;

constexpr double kStepRowHeight = 28.0, kStepTop = 8.0, kStepLabelWidth = 330.0;
constexpr std::size_t kStepMostLabel = 46;  // characters

bool has_interval(const TuningStep& step) {
  return std::isfinite(step.ratio_low) && std::isfinite(step.ratio_high) && step.ratio_low > 0.0;
}

Scale ratio_scale(const std::vector<TuningStep>& steps) {
  Scale scale{.low = 0.98, .high = 1.02, .begin = kStepLabelWidth, .end = kDrawingWidth - 96.0};
  for (const TuningStep& step : steps) {
    if (!known(step.ratio)) continue;
    scale.low = std::min(scale.low, (has_interval(step) ? step.ratio_low : step.ratio) - 0.005);
    scale.high = std::max(scale.high, (has_interval(step) ? step.ratio_high : step.ratio) + 0.005);
  }
  return rounded(scale, 10);
}

void draw_steps(Element parent, const std::vector<TuningStep>& steps) {
  const double bottom = kStepTop + kStepRowHeight * static_cast<double>(steps.size());
  const Scale scale = ratio_scale(steps);
  Element svg = add_drawing(parent, kDrawingWidth, bottom + 44.0,
                            "Times of whole steps over those with the usual choices");
  add_x_axis(svg, {.scale = scale,
                   .begin = kStepTop,
                   .end = bottom,
                   .label = "time of a step over that with the usual choices"});
  add_line(svg, {scale.at(1.0), 0.0}, {scale.at(1.0), bottom}, "reference");
  double y = kStepTop + 0.5 * kStepRowHeight;
  for (const TuningStep& step : steps) {
    add_label(svg, {8.0, y + 4.0}, shortened(step.step, kStepMostLabel));
    if (known(step.ratio)) {
      if (has_interval(step))
        add_line(svg, {scale.at(step.ratio_low), y}, {scale.at(step.ratio_high), y},
                 "range-racing");
      add_diamond(svg, {scale.at(step.ratio), y}, 5.0, "hot");
    }
    add_label(svg, {kDrawingWidth - 8.0, y + 4.0},
              known(step.ratio) ? change_text(step.ratio) : "unknown", "end bold");
    y += kStepRowHeight;
  }
}

}  // namespace

void add_steps(Element parent, const std::vector<TuningStep>& steps) {
  parent.add("h2", "Whole steps before and after");
  Element body = add_table(parent, {{"step"},
                                    {"usual choices", true},
                                    {"tuned", true},
                                    {"time", true},
                                    {"95 %", true},
                                    {"rounds", true}});
  for (const TuningStep& step : steps) {
    Element row = body.add("tr");
    row.add("td", step.step);
    add_number(row, known(step.default_microseconds), micros_text(step.default_microseconds));
    add_number(row, known(step.microseconds), micros_text(step.microseconds));
    add_number(row, known(step.ratio), change_text(step.ratio));
    row.add("td",
            has_interval(step) ? change_range_text(step.ratio_low, step.ratio_high) : "unknown")
        .set("class", "number");
    add_number(row, step.rounds, std::to_string(step.rounds));
  }
  draw_steps(add_figure(parent,
                        "A step is all kernels of a layer, back to back. Diamonds are medians of "
                        "the rounds' quotients, lines their 95 % intervals."),
             steps);
}

}  // namespace moejit::cli
