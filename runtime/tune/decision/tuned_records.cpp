// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/tuned_records.h"

#include "compiler/support/json_document.h"
#include "runtime/tune/decision/replay.h"

#include <algorithm>
#include <set>

namespace moejit::tune {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

// Returns a text of the session's context; empty if the context has none of this name.
std::string context_text(const Session& session, std::string_view key) {
  const auto context = parse_json(session.context, {.source_name = "context"});
  if (!context) return {};
  const JsonValue* const member = find_member(context->root, key);
  return member != nullptr && member->kind == JsonKind::kString ? member->text : std::string();
}

TuningEntry entry_of(const Journal& journal, const ReplayedRace& race) {
  const Outcome outcome = race.race.outcome();
  const auto winner = static_cast<std::size_t>(outcome.winner);
  const Standing& standing = outcome.standings[winner];
  const Session& session = journal.sessions[race.session];
  return {.problem = race.problem,
          .choices = race.winner(),
          .microseconds = race.timed.microseconds.at(outcome.winner),
          .default_microseconds = race.timed.microseconds.at(0),
          .ratio = standing.median_ratio,
          .ratio_low = standing.low,
          .ratio_high = standing.high,
          .rounds = standing.rounds,
          .text_digest = race.text_digests.empty() ? "" : race.text_digests[winner],
          .session = session.id,
          .date = context_text(session, "date"),
          .version = context_text(session, "version")};
}

}  // namespace

Result<std::vector<TuningRecord>> tuned_records(const Journal& journal, const RaceRules& rules) {
  MOEJIT_TRY_ASSIGN(const std::vector<ReplayedRace> races, replay(journal, rules));
  std::vector<TuningRecord> records;
  std::vector<std::string> gpus;  // GPUs of the records, as sessions write them
  for (const Session& session : journal.sessions) {
    if (std::ranges::count(gpus, session.gpu) > 0) continue;
    gpus.push_back(session.gpu);
    records.emplace_back();
    MOEJIT_TRY_ASSIGN(records.back().gpu,
                      compiler::parse_gpu_identity(session.gpu, "gpu of the journal"));
  }
  const auto record_of = [&](std::string_view gpu) -> TuningRecord& {
    return records[static_cast<std::size_t>(std::ranges::find(gpus, gpu) - gpus.begin())];
  };
  for (const ReplayedRace& race : races)
    if (race.is_decided()) record_of(race.gpu).entries.push_back(entry_of(journal, race));
  for (TuningRecord& record : records) std::ranges::sort(record.entries, {}, &TuningEntry::problem);
  return records;
}

Result<TuningRecord> without_decided(TuningRecord before, const Journal& journal) {
  MOEJIT_TRY_ASSIGN(const std::vector<ReplayedRace> races, replay(journal));
  std::set<std::string_view> gpus;  // texts of sessions that name the record's GPU
  for (const Session& session : journal.sessions) {
    MOEJIT_TRY_ASSIGN(const compiler::GpuIdentity gpu,
                      compiler::parse_gpu_identity(session.gpu, "gpu of the journal"));
    if (is_same_gpu(gpu, before.gpu)) gpus.insert(session.gpu);
  }
  for (const ReplayedRace& race : races)
    if (gpus.contains(race.gpu) && race.is_decided())
      std::erase_if(before.entries,
                    [&](const TuningEntry& entry) { return entry.problem == race.problem; });
  return before;
}

}  // namespace moejit::tune
