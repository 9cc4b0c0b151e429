// SPDX-License-Identifier: Apache-2.0
#include "cli/report/race_plot.h"
#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

constexpr double kClockPanelHeight = 84.0, kClockGap = 40.0;
constexpr double kClockLeft = 56.0, kClockRight = 984.0;

using Quantity = std::optional<double> tune::TimedBlock::*;

// What the blocks of one round tell of a quantity.
struct RoundMean {
  int32_t round = 1;
  double mean = 0.0, least = 0.0, most = 0.0;
};

std::vector<RoundMean> means_of(const tune::RaceBlocks& found, Quantity quantity) {
  std::vector<RoundMean> means;
  int32_t blocks = 0;
  for (const tune::TimedBlock& block : found.blocks) {
    const std::optional<double> value = known((block.*quantity).value_or(0.0));
    if (!value) continue;
    if (means.empty() || means.back().round != block.round) {
      means.push_back({block.round, 0.0, *value, *value});
      blocks = 0;
    }
    RoundMean& last = means.back();
    ++blocks;
    last.mean += (*value - last.mean) / blocks;
    last.least = std::min(last.least, *value);
    last.most = std::max(last.most, *value);
  }
  return means;
}

Scale value_scale(const std::vector<RoundMean>& means) {
  double low = means.front().least, high = means.front().most;
  for (const RoundMean& mean : means) {
    low = std::min(low, mean.least);
    high = std::max(high, mean.most);
  }
  const double pad = std::max(0.1 * (high - low), 0.01 * high);
  return rounded({.low = std::max(low - pad, 0.0), .high = high + pad}, 3);
}

// Draws one quantity from y = top down.
void draw_panel(Element svg, const std::vector<RoundMean>& means, const Scale& rounds, double top,
                std::string_view label) {
  Scale values = value_scale(means);
  values.begin = top + kClockPanelHeight;
  values.end = top;
  add_y_axis(
      svg,
      {.scale = values, .begin = kClockLeft, .end = kClockRight, .label = label, .most_ticks = 3});
  std::vector<Point> line;
  for (const RoundMean& mean : means) {
    const double x = rounds.at(mean.round);
    if (!line.empty() && mean.round != (&mean - 1)->round + 1) {  // a gap
      add_polyline(svg, line, "trace");
      line.clear();
    }
    line.push_back({x, values.at(mean.mean)});
    if (mean.most > mean.least)
      add_line(svg, {x, values.at(mean.least)}, {x, values.at(mean.most)}, "leader");
    add_circle(svg, line.back(), 2.7, "dot-racing")
        .add("title", fmt::format("round {}: {:.0f}", mean.round, mean.mean));
  }
  add_polyline(svg, line, "trace");
}

void draw_rounds(Element svg, const tune::RaceBlocks& found, const Scale& rounds, double bottom) {
  const int32_t step = std::max(1, (found.rounds + 23) / 24);
  for (int32_t round = 1; round <= found.rounds; round += step)
    add_label(svg, {rounds.at(round), bottom + 18.0}, fmt::format("{}", round), "soft middle");
  add_label(svg, {0.5 * (kClockLeft + kClockRight), bottom + 36.0}, "round", "soft middle");
  for (std::size_t i = 1; i < found.session_starts.size(); ++i) {
    const double x = rounds.at(found.session_starts[i] - 0.5);
    add_line(svg, {x, 0.0}, {x, bottom}, "axis dashed");
    add_label(svg, {x + 5.0, 12.0}, "next session", "soft");
  }
}

}  // namespace

bool tells_clock_or_power(const tune::RaceBlocks& found) {
  return !means_of(found, &tune::TimedBlock::megahertz).empty() ||
         !means_of(found, &tune::TimedBlock::watts).empty();
}

void draw_clocks(Element parent, const tune::RaceBlocks& found) {
  const std::vector<RoundMean> clocks = means_of(found, &tune::TimedBlock::megahertz);
  const std::vector<RoundMean> powers = means_of(found, &tune::TimedBlock::watts);
  const double panels = (clocks.empty() ? 0.0 : 1.0) + (powers.empty() ? 0.0 : 1.0);
  const double bottom = panels * (kClockPanelHeight + kClockGap) - 8.0;
  Element svg =
      add_drawing(parent, kDrawingWidth, bottom + 44.0, "Clock and power over the rounds");
  const Scale rounds{
      .low = 0.5, .high = found.rounds + 0.5, .begin = kClockLeft, .end = kClockRight};
  double top = kClockGap - 14.0;
  if (!clocks.empty()) {
    draw_panel(svg, clocks, rounds, top, "clock of the SMs, MHz");
    top += kClockPanelHeight + kClockGap;
  }
  if (!powers.empty()) draw_panel(svg, powers, rounds, top, "power, W");
  draw_rounds(svg, found, rounds, bottom);
}

}  // namespace moejit::cli
