// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay_steps.h"

#include "compiler/support/json_document.h"
#include "runtime/tune/decision/last_lists.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <set>
#include <utility>

namespace moejit::tune {
namespace {

using Proposals = std::map<EntryKey, StepChoice>;

StepChoice proposal_of(const ReplayedRace& race) {
  const Outcome outcome = race.race.outcome();
  const auto winner = static_cast<std::size_t>(race.is_decided() ? outcome.winner : 0);
  return {.problem = race.problem,
          .choices = race.candidates[winner],
          .text_digest = winner < race.text_digests.size() ? race.text_digests[winner] : "",
          .certainty = std::max(1.0 - outcome.standings[winner].high, 0.0)};
}

Proposals proposals_of(std::span<const ReplayedRace> races) {
  Proposals proposals;
  for (const ReplayedRace& race : races)
    proposals.emplace(EntryKey(race.gpu, race.problem), proposal_of(race));
  return proposals;
}

// Feeds the rounds of one step to its confirmation, in the order of the journal.
class StepTrack {
 public:
  // Starts the confirmation; `list` is the step's last list.
  StepTrack(const StepList& list, const StepRules& rules) : confirmation_(list.choices, rules) {}

  Result<void> take(std::size_t session, const StepRound& round) {
    const bool is_copy = !rounds_.emplace(session, round.round).second;
    if (is_copy || confirmation_.state() != StepState::kMeasuring) return {};
    if (round.set != confirmation_.set_digest()) return {};
    session_ = session;
    return confirmation_.add(round.times);
  }

  ReplayedStep finish(const EntryKey& key) && {
    return {std::string(key.first), std::string(key.second), std::move(confirmation_), session_};
  }

 private:
  StepConfirmation confirmation_;
  std::set<std::pair<std::size_t, int32_t>> rounds_;  // by session and number, to find copies
  std::size_t session_ = 0;
};

// Returns whether the races still propose all choices of the list, with the same texts.
bool holds(const StepList& list, std::string_view gpu, const Proposals& proposals) {
  return std::ranges::all_of(list.choices, [&](const StepChoice& choice) {
    const auto found = proposals.find({gpu, choice.problem});
    return found != proposals.end() && found->second.choices == choice.choices &&
           found->second.text_digest == choice.text_digest;
  });
}

}  // namespace

StepList proposed_choices(std::span<const ReplayedRace> races, std::string_view gpu,
                          std::span<const std::string> problems) {
  StepList list;
  for (const std::string& problem : std::set<std::string>(problems.begin(), problems.end())) {
    const auto race = std::ranges::find_if(races, [&](const ReplayedRace& each) {
      return each.gpu == gpu && each.problem == problem;
    });
    if (race != races.end()) list.choices.push_back(proposal_of(*race));
  }
  return list;
}

Result<std::vector<ReplayedStep>> replay_steps(const Journal& journal,
                                               std::span<const ReplayedRace> races,
                                               const StepRules& rules) {
  const auto lists = last_lists<StepList>(journal);
  std::map<EntryKey, StepTrack> tracks;
  for (const auto& [key, list] : lists.last) tracks.emplace(key, StepTrack(*list, rules));
  for (const Entry& entry : journal.entries) {
    const auto* const round = std::get_if<StepRound>(&entry.event);
    if (round == nullptr) continue;
    const auto track = tracks.find(key_of(journal, entry));
    if (track == tracks.end())
      return fail(Stage::kFile, ErrorCode::kInvalidValue,
                  fmt::format("journal: step {} has times, but no list of choices",
                              quote_for_message(entry.problem)),
                  "is the beginning of the journal missing?");
    MOEJIT_TRY(track->second.take(entry.session, *round));
  }
  const Proposals proposals = proposals_of(races);
  std::vector<ReplayedStep> steps;
  for (const EntryKey& key : lists.order)
    if (holds(*lists.last.at(key), key.first, proposals))
      steps.push_back(std::move(tracks.at(key)).finish(key));
  return steps;
}

}  // namespace moejit::tune
