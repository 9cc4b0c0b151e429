// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay.h"

#include "compiler/support/json_document.h"
#include "runtime/tune/decision/last_lists.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::Choices;

// A round whose last time of the default is still to come.
struct OpenRound {
  std::size_t session = 0;
  int32_t number = 0;
  Round times;
};

// Feeds the events of one problem to its race, in the order of the journal.
class RaceTrack {
 public:
  RaceTrack(const CandidateList& last, const RaceRules& rules)
      : last_(&last),
        listed_(&last),
        candidates_(last.candidates),
        race_(static_cast<int32_t>(candidates_.size()), rules) {}

  Result<void> take(std::size_t /*session*/, const CandidateList& list) {
    listed_ = &list;
    return {};
  }

  Result<void> take(std::size_t session, const Block& block) {
    if (block.place == Place::kDefaultFirst) return begin(session, block);
    if (!open_ || open_->session != session || open_->number != block.round) return {};
    if (block.place == Place::kDefaultLast) return end(block);
    const std::optional<int32_t> candidate = find(block.choices);
    if (candidate == 0)
      open_->times.default_inner_us.push_back(block.microseconds);
    else if (candidate)
      open_->times.candidates_us[*candidate] = block.microseconds;
    return {};
  }

  Result<void> take(std::size_t /*session*/, const FoundFault& found) {
    const std::optional<int32_t> candidate = find(found.choices);
    // The default may have had a fault while the list had another default.
    if (!candidate || *candidate == 0) return {};
    return race_.disqualify(*candidate, found.fault);
  }

  ReplayedRace finish(std::string gpu, std::string problem) {
    return {.gpu = std::move(gpu),
            .problem = std::move(problem),
            .candidates = std::move(candidates_),
            .race = std::move(race_),
            .text_digests = last_->text_digests,
            .estimated_share = last_->estimated_share};
  }

 private:
  // Returns the candidate with these choices; none if its text in `listed_` was another one.
  std::optional<int32_t> find(const Choices& choices) const {
    const auto found = std::ranges::find(candidates_, choices);
    if (found == candidates_.end()) return std::nullopt;
    if (text_digest_of(*listed_, choices) != text_digest_of(*last_, choices)) return std::nullopt;
    return static_cast<int32_t>(found - candidates_.begin());
  }

  Result<void> begin(std::size_t session, const Block& block) {
    open_.reset();
    if (find(block.choices) != 0) return {};
    open_ = OpenRound{.session = session, .number = block.round, .times = {}};
    open_->times.default_first_us = block.microseconds;
    return {};
  }

  Result<void> end(const Block& block) {
    Round round = std::exchange(open_, std::nullopt)->times;
    if (block.choices != candidates_.front()) return {};
    round.default_last_us = block.microseconds;
    return race_.add_racing(std::move(round));
  }

  const CandidateList* last_;    // the last list, which says who races
  const CandidateList* listed_;  // the last list so far
  std::vector<Choices> candidates_;
  Race race_;
  std::optional<OpenRound> open_;
};

}  // namespace

std::string text_digest_of(const CandidateList& list, const Choices& choices) {
  const auto found = std::ranges::find(list.candidates, choices);
  const auto index = static_cast<std::size_t>(found - list.candidates.begin());
  return index < list.text_digests.size() ? list.text_digests[index] : std::string();
}

const Choices& ReplayedRace::winner() const {
  return candidates[static_cast<std::size_t>(race.outcome().winner)];
}

bool ReplayedRace::is_decided() const {
  const Outcome outcome = race.outcome();
  return outcome.is_settled && outcome.standings.front().rounds > 0;
}

Result<std::vector<ReplayedRace>> replay(const Journal& journal, const RaceRules& rules) {
  const auto lists = last_lists<CandidateList>(journal);
  std::map<EntryKey, RaceTrack> tracks;
  for (const auto& [key, list] : lists.last) tracks.emplace(key, RaceTrack(*list, rules));
  for (const Entry& entry : journal.entries) {
    const auto track = tracks.find(key_of(journal, entry));
    if (track == tracks.end())
      return fail(Stage::kFile, ErrorCode::kInvalidValue,
                  fmt::format("journal: problem {} has times or faults, but no list of candidates",
                              quote_for_message(entry.problem)),
                  "is the beginning of the journal missing?");
    MOEJIT_TRY(std::visit(
        [&](const auto& event) { return track->second.take(entry.session, event); }, entry.event));
  }
  std::vector<ReplayedRace> races;
  for (const auto& [gpu, problem] : lists.order)
    races.push_back(tracks.at({gpu, problem}).finish(std::string(gpu), std::string(problem)));
  return races;
}

}  // namespace moejit::tune
