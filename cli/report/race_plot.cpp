// SPDX-License-Identifier: Apache-2.0
#include "cli/report/race_plot.h"

#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::Choices;
using tune::Outcome;
using tune::Standing;

constexpr double kRaceRowHeight = 30.0;
constexpr double kRaceTop = 44.0;           // above the first row: the legend
constexpr double kCodeWidth = 7.0;          // of a character of class "code"
constexpr double kFigureWidth = 70.0;       // of the column "-9.5 %"
constexpr double kStateWidth = 178.0;       // of the column "dropped after 12 rounds"
constexpr double kFarthest = 1.5;           // largest end of the axis; dots beyond lie at its edge
constexpr double kOutFarthest = 1.1;        // largest end for candidates that are out
constexpr std::size_t kRaceMostLabel = 54;  // characters; the table has all of a longer one

const Standing& standing_of(const Outcome& outcome, int32_t candidate) {
  return outcome.standings[static_cast<std::size_t>(candidate)];
}

std::string_view css_of(RaceState state) {
  switch (state) {
    case RaceState::kUsual: return "usual";
    case RaceState::kWinner: return "winner";
    case RaceState::kRacing: return "racing";
    default: return "out";
  }
}

// Where rows and columns of the drawing lie.
struct Layout {
  std::vector<int32_t> order;
  std::vector<std::string> labels;  // by candidate
  Scale scale;

  double bottom() const { return kRaceTop + kRaceRowHeight * static_cast<double>(order.size()); }
  double right() const { return scale.end + 16.0; }
};

Scale ratio_scale(const tune::RaceBlocks& found, const Outcome& outcome) {
  double low = std::min(0.97, std::isfinite(outcome.zone) ? 0.99 - outcome.zone : 1.0);
  double high = 1.03;
  for (const tune::TimedBlock& block : found.blocks) {
    const bool is_out = css_of(state_of(outcome, block.candidate)) == "out";
    low = std::min(low, block.ratio - 0.005);
    high = std::max(high, std::min(block.ratio + 0.005, is_out ? kOutFarthest : kFarthest));
  }
  return rounded({.low = std::max(low, 0.0), .high = high}, 12);
}

Layout lay_out(const tune::ReplayedRace& race, const Outcome& outcome,
               const tune::RaceBlocks& found) {
  Layout layout{.order = listed_order(outcome), .scale = ratio_scale(found, outcome)};
  std::size_t longest = 12;
  for (std::size_t i = 0; i < race.candidates.size(); ++i) {
    std::string label =
        i == 0 ? "usual choices" : short_choices(race.candidates[i], race.candidates.front());
    layout.labels.push_back(shortened(label, kRaceMostLabel));
    longest = std::max(longest, length_of(layout.labels.back()));
  }
  layout.scale.begin = kCodeWidth * static_cast<double>(longest) + 20.0;
  layout.scale.end = kDrawingWidth - kFigureWidth - kStateWidth - 16.0;
  return layout;
}

// Draws what each mark means.
void draw_legend(Element svg, const Layout& layout, const Outcome& outcome) {
  double x = layout.scale.begin;
  const double y = 14.0;
  add_circle(svg, {x + 4.0, y - 4.0}, 3.0, "dot-racing legend");
  add_label(svg, {x + 14.0, y}, "a block", "soft");
  x += 72.0;
  add_circle(svg, {x + 4.0, y - 4.0}, 3.0, "dot-out legend");
  add_label(svg, {x + 14.0, y}, "dropped or ruled out", "soft");
  x += 128.0;
  add_line(svg, {x, y - 4.0}, {x + 22.0, y - 4.0}, "range-racing");
  add_line(svg, {x + 11.0, y - 10.0}, {x + 11.0, y + 2.0}, "range-racing");
  add_label(svg, {x + 28.0, y}, "median, 95 %", "soft");
  x += 130.0;
  if (!std::isfinite(outcome.zone)) return;
  add_box(svg, {x, y - 10.0}, 22.0, 12.0, "shade");
  add_label(svg, {x + 28.0, y}, "no gain is believed here", "soft");
}

void draw_ground(Element svg, const Layout& layout, const Outcome& outcome) {
  for (std::size_t row = 0; row < layout.order.size(); ++row)
    if (state_of(outcome, layout.order[row]) == RaceState::kWinner)
      add_box(svg, {0.0, kRaceTop + kRaceRowHeight * static_cast<double>(row)}, kDrawingWidth,
              kRaceRowHeight, "pick");
  for (std::size_t row = 0; row <= layout.order.size(); ++row) {
    const double y = kRaceTop + kRaceRowHeight * static_cast<double>(row);
    add_line(svg, {0.0, y}, {kDrawingWidth, y}, "grid");
  }
  if (std::isfinite(outcome.zone)) {
    const double from = layout.scale.at(layout.scale.nearest(1.0 - outcome.zone));
    add_box(svg, {from, kRaceTop}, layout.scale.at(1.0) - from, layout.bottom() - kRaceTop,
            "shade");
  }
  add_x_axis(svg, {.scale = layout.scale,
                   .begin = kRaceTop,
                   .end = layout.bottom(),
                   .label = "time over that of the usual choices in the same round"});
  add_line(svg, {layout.scale.at(1.0), kRaceTop - 6.0}, {layout.scale.at(1.0), layout.bottom()},
           "reference");
}

// Draws the median of a candidate across its interval, below the dots.
void draw_median(Element svg, const Layout& layout, const Standing& standing, std::string_view css,
                 double y) {
  const std::string range = fmt::format("range-{}", css);
  if (standing.rounds == 0 || standing.median_ratio > layout.scale.high) return;
  const auto at = [&](double ratio) { return layout.scale.at(layout.scale.nearest(ratio)); };
  if (std::isfinite(standing.high))
    add_line(svg, {at(standing.low), y + 9.0}, {at(standing.high), y + 9.0}, range + " interval");
  add_line(svg, {at(standing.median_ratio), y + 5.0}, {at(standing.median_ratio), y + 13.0},
           range + " median");
}

void draw_row(Element svg, const Layout& layout, const Outcome& outcome, int32_t candidate,
              double y) {
  const Standing& standing = standing_of(outcome, candidate);
  const RaceState state = state_of(outcome, candidate);
  const bool is_bold = state == RaceState::kWinner;
  const std::string weight = is_bold ? " bold" : "";
  add_label(svg, {8.0, y + 4.0}, layout.labels[static_cast<std::size_t>(candidate)],
            "code" + weight);
  if (state == RaceState::kUsual) {
    if (std::isfinite(outcome.noise))
      add_label(svg, {layout.right() + kFigureWidth - 12.0, y + 4.0},
                fmt::format("\u00B1{:.1f} %", 100.0 * outcome.noise), "end");
    add_label(svg, {layout.right() + kFigureWidth, y + 4.0}, state_text(outcome, 0), "soft");
    return;
  }
  draw_median(svg, layout, standing, css_of(state), y);
  if (standing.rounds > 0)
    add_label(svg, {layout.right() + kFigureWidth - 12.0, y + 4.0},
              change_text(standing.median_ratio), "end" + weight);
  add_label(svg, {layout.right() + kFigureWidth, y + 4.0}, state_text(outcome, candidate),
            is_bold ? "bold" : "soft");
}

// Draws the block's dot. Later rounds lie lower, so that a drift shows.
void draw_dot(Element svg, const Layout& layout, const tune::TimedBlock& block, int32_t rounds,
              std::string_view css, double y) {
  const double drift =
      rounds < 2 ? 0.0 : static_cast<double>(block.round - 1) / static_cast<double>(rounds - 1);
  const Point at{layout.scale.at(layout.scale.nearest(block.ratio)), y - 10.0 + 10.0 * drift};
  const std::string dot = fmt::format("dot-{} block", css);
  Element mark = block.ratio > layout.scale.high ? add_arrowhead(svg, at, 3.0, dot)
                                                 : add_circle(svg, at, 2.7, dot);
  mark.add("title", fmt::format("round {}: {}, {:.4f} of the usual choices", block.round,
                                micros_text(block.microseconds), block.ratio));
}

}  // namespace

RaceState state_of(const Outcome& outcome, int32_t candidate) {
  const Standing& standing = standing_of(outcome, candidate);
  if (candidate == 0) return RaceState::kUsual;
  if (standing.fault) return RaceState::kRuledOut;
  if (outcome.is_settled && outcome.winner == candidate) return RaceState::kWinner;
  if (standing.dropped_after > 0) return RaceState::kDropped;
  return standing.rounds > 0 ? RaceState::kRacing : RaceState::kUntimed;
}

std::string state_text(const Outcome& outcome, int32_t candidate) {
  const Standing& standing = standing_of(outcome, candidate);
  switch (state_of(outcome, candidate)) {
    case RaceState::kUsual: return outcome.is_settled && outcome.winner == 0 ? "they stay" : "";
    case RaceState::kWinner: return "winner";
    case RaceState::kDropped: return "dropped after " + count_text(standing.dropped_after, "round");
    case RaceState::kRuledOut: {
      std::string fault(to_string(*standing.fault));
      std::ranges::replace(fault, '_', ' ');
      return "ruled out: " + fault;
    }
    case RaceState::kRacing: break;
    case RaceState::kUntimed: return "not timed";
  }
  if (!outcome.is_settled) return "still in the race";
  const bool gains = standing.high < 1.0 && standing.median_ratio <= 1.0 - outcome.zone;
  return gains ? "gains, not chosen" : "no certain gain";
}

std::vector<int32_t> listed_order(const Outcome& outcome) {
  std::vector<int32_t> order;
  for (std::size_t i = 0; i < outcome.standings.size(); ++i)
    order.push_back(static_cast<int32_t>(i));
  const auto rank = [&](int32_t candidate) {
    const Standing& standing = standing_of(outcome, candidate);
    return std::pair(standing.rounds == 0, standing.median_ratio);
  };
  std::stable_sort(order.begin() + 1, order.end(),
                   [&](int32_t one, int32_t other) { return rank(one) < rank(other); });
  return order;
}

std::string short_choices(const Choices& choices, const Choices& usual) {
  Choices differing;
  for (const auto& [knob, value] : choices) {
    const auto same = usual.find(knob);
    if (same == usual.end() || choices.size() != usual.size()) return compiler::to_string(choices);
    if (same->second != value) differing.emplace(knob, value);
  }
  return compiler::to_string(differing);
}

void draw_race(Element parent, const tune::ReplayedRace& race, const Outcome& outcome,
               const tune::RaceBlocks& found) {
  const Layout layout = lay_out(race, outcome, found);
  Element svg = add_drawing(
      parent, kDrawingWidth, layout.bottom() + 44.0,
      fmt::format("Times of {} over those of the usual choices, a dot for each block",
                  count_text(static_cast<int64_t>(race.candidates.size()), "candidate")));
  draw_ground(svg, layout, outcome);
  draw_legend(svg, layout, outcome);
  for (std::size_t row = 0; row < layout.order.size(); ++row) {
    const int32_t candidate = layout.order[row];
    const double y = kRaceTop + kRaceRowHeight * (static_cast<double>(row) + 0.5);
    for (const tune::TimedBlock& block : found.blocks)
      if (block.candidate == candidate)
        draw_dot(svg, layout, block, found.rounds, css_of(state_of(outcome, candidate)), y);
    draw_row(svg, layout, outcome, candidate, y);
  }
}

}  // namespace moejit::cli
