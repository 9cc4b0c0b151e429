// SPDX-License-Identifier: Apache-2.0
#include "cli/report/tune_page.h"

#include "cli/report/html_page.h"
#include "cli/report/race_section.h"
#include "cli/report/report_text.h"
#include "compiler/support/json_document.h"
#include "runtime/tune/decision/replay.h"
#include "runtime/tune/tune_problem.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

// Returns a text of the session's context; "unknown" if it has none of this name.
std::string context_text(const tune::Session& session, std::string_view key) {
  const auto context = parse_json(session.context, {.source_name = "context"});
  if (!context || context->root.kind != JsonKind::kObject) return "unknown";
  const JsonValue* const member = find_member(context->root, key);
  const bool is_known =
      member != nullptr && member->kind == JsonKind::kString && !member->text.empty();
  return is_known ? member->text : "unknown";
}

// Returns the different texts that the sessions have under a key, in their order.
std::string context_texts(const tune::Journal& journal, std::string_view key) {
  std::vector<std::string> texts;
  for (const tune::Session& session : journal.sessions) {
    std::string text = context_text(session, key);
    if (std::ranges::count(texts, text) == 0) texts.push_back(std::move(text));
  }
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

std::vector<ReportedRace> reported(const std::vector<tune::ReplayedRace>& races,
                                   const TuningRecord& record) {
  std::vector<ReportedRace> reported;
  for (const tune::ReplayedRace& race : races) {
    reported.push_back({.race = race, .outcome = race.race.outcome()});
    const auto entry = std::ranges::find(record.entries, race.problem, &TuningEntry::problem);
    if (reported.back().outcome.is_settled && entry != record.entries.end())
      reported.back().entry = &*entry;
  }
  return reported;
}

void add_summary(Element main, const TuneSummary& summary) {
  const auto fact = [](std::string_view label, int64_t count) {
    return Fact{label, std::to_string(count), static_cast<double>(count)};
  };
  add_facts(main, {fact("problems", summary.problems), fact("settled", summary.settled),
                   fact("with a gain", summary.gains), fact("candidates", summary.candidates),
                   fact("ruled out", summary.faults)});
  if (summary.changed_bits > 0)
    main.add("p",
             fmt::format("{} gave other bits than the usual choices, which is a bug in moejit; "
                         "what was found is listed with the problem.",
                         count_text(summary.changed_bits, "candidate")))
        .set("class", "alarm");
}

// Adds the record's numbers to a row of the overview.
void add_entry(Element row, const ReportedRace& race) {
  const TuningEntry* const entry = race.entry;
  if (entry == nullptr) {
    for (int i = 0; i < 4; ++i) add_no_number(row);
    return;
  }
  add_number(row, entry->ratio, change_text(entry->ratio));
  if (race.outcome.winner == 0) {
    add_no_number(row);
  } else {
    row.add("td", change_range_text(entry->ratio_low, entry->ratio_high)).set("class", "number");
  }
  add_number(row, entry->default_microseconds, micros_text(entry->default_microseconds));
  add_number(row, entry->microseconds, micros_text(entry->microseconds));
}

void add_overview_row(Element body, std::size_t number, const ReportedRace& race) {
  Element row = body.add("tr").set("class", "race");
  Element link = row.add("td").add("a", std::to_string(number));
  link.set("href", std::string_view(fmt::format("#problem-{}", number)));
  row.add("td", race.race.problem).set("class", "problem");
  row.add("td", race.outcome.standings.front().rounds == 0 ? "not measured"
                : !race.outcome.is_settled                 ? "not settled"
                : race.outcome.winner == 0                 ? "usual choices"
                                           : compiler::to_string(race.race.winner()));
  add_entry(row, race);
  add_number(row, race.outcome.standings.front().rounds,
             std::to_string(race.outcome.standings.front().rounds));
  const auto faults = std::ranges::count_if(
      race.outcome.standings,
      [](const tune::Standing& standing) { return standing.fault.has_value(); });
  add_number(row, static_cast<double>(faults),
             fmt::format("{} of {}", faults, race.race.candidates.size()));
  const std::optional<double> share = race.race.estimated_share;
  add_number(row, share, share ? tune::share_text(*share) : "");
}

void add_sessions(Element main, const tune::Journal& journal) {
  main.add("h2", "Sessions");
  Element body = add_table(main, {{"session"}, {"date"}, {"moejit"}, {"CUDA of the driver"}});
  for (const tune::Session& session : journal.sessions) {
    Element row = body.add("tr");
    row.add("td", session.id);
    row.add("td", context_text(session, "date"));
    row.add("td", context_text(session, "version"));
    row.add("td", context_text(session, "cuda_version"));
  }
}

}  // namespace

Result<std::string> tune_report_html(const tune::Journal& journal, const TuningRecord& record) {
  MOEJIT_TRY_ASSIGN(const std::vector<tune::ReplayedRace> races, tune::replay(journal));
  MOEJIT_TRY_ASSIGN(const TuneSummary summary, summarize(journal));
  const std::vector<ReportedRace> reports = reported(races, record);
  HtmlPage page("Tuning report",
                fmt::format("{}; measured {} with moejit {}", to_string(record.gpu),
                            context_texts(journal, "date"), context_texts(journal, "version")));
  Element main = page.main();
  add_summary(main, summary);
  Element body = add_table(main, {{""},
                                  {"problem"},
                                  {"fastest choices"},
                                  {"time", true},
                                  {"95 %", true},
                                  {"usual", true},
                                  {"tuned", true},
                                  {"rounds", true},
                                  {"ruled out", true},
                                  {"share", true}});
  for (std::size_t i = 0; i < reports.size(); ++i) add_overview_row(body, i + 1, reports[i]);
  main.add("p",
           "Times are medians of a launch. A change of time is the median of the quotients of each "
           "round, with its 95 % interval: what slows a whole round cancels. The share is that of "
           "the estimated time of all problems of the sweep.")
      .set("class", "note");
  for (std::size_t i = 0; i < reports.size(); ++i) add_race(main, i + 1, reports[i]);
  add_sessions(main, journal);
  return page.text();
}

}  // namespace moejit::cli
