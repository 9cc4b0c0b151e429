// SPDX-License-Identifier: Apache-2.0
#include "cli/report/race_section.h"

#include "cli/report/html_page.h"
#include "cli/report/race_plot.h"
#include "cli/report/report_text.h"

#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using tune::Outcome;
using tune::Standing;

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

// Returns what came of the race, in a sentence.
std::string outcome_text(const ReportedRace& reported) {
  const Outcome& outcome = reported.outcome;
  const int32_t rounds = outcome.standings.front().rounds;
  if (rounds == 0) return "Not measured.";
  if (!outcome.is_settled) return fmt::format("Not settled after {}.", count_text(rounds, "round"));
  if (outcome.winner == 0)
    return fmt::format("Settled after {}: the usual choices stay.", count_text(rounds, "round"));
  const Standing& winner = outcome.standings[static_cast<std::size_t>(outcome.winner)];
  return fmt::format("Settled after {}. Fastest: {}, {} time (95 %: {}).",
                     count_text(rounds, "round"), compiler::to_string(reported.race.winner()),
                     change_text(winner.median_ratio), change_range_text(winner.low, winner.high));
}

// Adds how much blocks of the usual kernel differ, and from which size on a gain is believed.
void add_noise(Element parent, const Outcome& outcome) {
  Element text = parent.add("p");
  text.set("class", "noise");
  if (!std::isfinite(outcome.noise)) {
    text.write("Noise of the usual choices: unknown; it takes six rounds to tell.");
    return;
  }
  text.write("Noise of the usual choices: their blocks of a round differ by \u00B1");
  add_value(text, outcome.noise, percent_text(outcome.noise));
  text.write(" (95 % interval of the median). A gain is believed beyond ");
  add_value(text, outcome.zone, percent_text(outcome.zone));
  text.write(".");
}

void add_candidate_row(Element body, const ReportedRace& reported, int32_t candidate) {
  const Standing& standing = reported.outcome.standings[static_cast<std::size_t>(candidate)];
  const auto& choices = reported.race.candidates[static_cast<std::size_t>(candidate)];
  const bool is_timed = standing.rounds > 0;
  const bool is_usual = candidate == 0;
  Element row = body.add("tr");
  if (state_of(reported.outcome, candidate) == RaceState::kWinner) row.set("class", "winner");
  row.add("td", compiler::to_string(choices)).set("class", "choices candidate");
  if (is_timed && !is_usual) {
    add_number(row, standing.median_ratio, change_text(standing.median_ratio));
    row.add("td", change_range_text(standing.low, standing.high)).set("class", "number");
  } else {
    add_no_number(row);
    add_no_number(row);
  }
  add_number(row, standing.rounds, std::to_string(standing.rounds));
  const std::string state = state_text(reported.outcome, candidate);
  row.add("td", !is_usual ? state : state.empty() ? "usual choices" : "usual choices: they stay");
}

void add_candidates(Element parent, const ReportedRace& reported) {
  Element details = parent.add("details");
  details.set("open", "open");
  details.add("summary",
              count_text(static_cast<int64_t>(reported.race.candidates.size()), "candidate"));
  Element body = add_table(
      details, {{"choices"}, {"time", true}, {"95 %", true}, {"rounds", true}, {"outcome"}});
  for (const int32_t candidate : listed_order(reported.outcome))
    add_candidate_row(body, reported, candidate);
}

// Adds what candidates were ruled out for, with what the compiler or the driver said.
void add_faults(Element parent, const ReportedRace& reported, const tune::RaceBlocks& found) {
  bool has_heading = false;
  for (const int32_t candidate : listed_order(reported.outcome)) {
    if (state_of(reported.outcome, candidate) != RaceState::kRuledOut) continue;
    if (!std::exchange(has_heading, true)) parent.add("h3", "Ruled out");
    parent
        .add("p", fmt::format("{}: {}",
                              compiler::to_string(
                                  reported.race.candidates[static_cast<std::size_t>(candidate)]),
                              state_text(reported.outcome, candidate)))
        .set("class", "fault");
    const auto fault = found.faults.find(candidate);
    if (fault != found.faults.end() && !fault->second.empty()) parent.add("pre", fault->second);
  }
}

void add_clocks(Element parent, const tune::RaceBlocks& found) {
  parent.add("h3", "Clock and power");
  if (tells_clock_or_power(found)) {
    draw_clocks(add_figure(parent,
                           "Mean of each round; a thin line is the range of its blocks where they "
                           "differ. What was not measured is left out."),
                found);
  } else {
    parent.add("p", "Clock: unknown. Power: unknown.").set("class", "note");
  }
}

// Returns how many blocks of candidates were timed without the race asking for them.
int64_t unasked_of(const Outcome& outcome, const tune::RaceBlocks& found) {
  int64_t count = 0;
  for (const tune::TimedBlock& block : found.blocks) count += block.candidate > 0 ? 1 : 0;
  for (std::size_t i = 1; i < outcome.standings.size(); ++i) count -= outcome.standings[i].rounds;
  return count;
}

std::string blocks_text(const ReportedRace& reported, const tune::RaceBlocks& found) {
  std::string text = count_text(static_cast<int64_t>(found.blocks.size()), "block") +
                     ", a dot each; of a candidate's dots later rounds lie lower. Arrows stand for "
                     "slower ones than the axis has.";
  if (const int64_t unasked = unasked_of(reported.outcome, found); unasked > 0)
    text +=
        fmt::format(" {} came after the race was decided for that candidate, and did not count.",
                    count_text(unasked, "block"));
  if (found.left_out > 0)
    text += fmt::format(
        " {} of a round that was cut off, or of a kernel whose text has changed since, {} left "
        "out.",
        count_text(found.left_out, "block"), found.left_out == 1 ? "is" : "are");
  return text;
}

}  // namespace

void add_race(Element parent, std::size_t number, const ReportedRace& reported) {
  const tune::RaceBlocks& found = reported.race.timed;
  Element section = parent.add("section");
  section.add("h2", fmt::format("Problem {}", number))
      .set("id", std::string_view(fmt::format("problem-{}", number)));
  section.add("p", reported.race.problem).set("class", "problem name");
  Element text = section.add("p", outcome_text(reported));
  if (const compiler::TuningEntry* const entry = reported.entry) {
    text.write(" A launch takes ");
    add_value(text, entry->microseconds, micros_text(entry->microseconds));
    if (reported.outcome.winner != 0) {
      text.write(", with the usual choices ");
      add_value(text, entry->default_microseconds, micros_text(entry->default_microseconds));
    }
    text.write(" (medians).");
  }
  add_noise(section, reported.outcome);
  if (!found.blocks.empty())
    draw_race(add_figure(section, blocks_text(reported, found)), reported.race, reported.outcome,
              found);
  add_clocks(section, found);
  add_candidates(section, reported);
  add_faults(section, reported, found);
}

}  // namespace moejit::cli
