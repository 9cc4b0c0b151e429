// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay.h"

#include "compiler/support/json_document.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::Choices;

// Returns the digest of the text that these choices had when the list was made. Empty if it is not
// known.
std::string_view text_digest_of(const CandidateList& list, const Choices& choices) {
  const auto found = std::ranges::find(list.candidates, choices);
  const auto index = static_cast<std::size_t>(found - list.candidates.begin());
  return index < list.text_digests.size() ? list.text_digests[index] : std::string_view();
}

// Feeds the events of one problem to its race, in the order of the journal.
class RaceTrack {
 public:
  // Starts the race; `last` is the problem's last list, which says who races.
  RaceTrack(const CandidateList& last, const RaceRules& rules)
      : last_(&last), listed_(&last), race_(static_cast<int32_t>(last.candidates.size()), rules) {}

  Result<void> take(std::size_t session, const Event& event) {
    session_ = session;
    if (const auto* const list = std::get_if<CandidateList>(&event)) listed_ = list;
    if (const auto* const block = std::get_if<Block>(&event)) return take(*block);
    if (const auto* const fault = std::get_if<FoundFault>(&event)) return take(*fault);
    return {};
  }

  ReplayedRace finish(std::string_view gpu, std::string_view problem) {
    drop_open();
    for (auto& [candidate, times] : times_)
      found_.microseconds[candidate] = median_interval(std::move(times)).median;
    return {.gpu = std::string(gpu),
            .problem = std::string(problem),
            .candidates = last_->candidates,
            .race = std::move(race_),
            .text_digests = last_->text_digests,
            .estimated_share = last_->estimated_share,
            .session = session_,
            .timed = std::move(found_)};
  }

 private:
  // Returns the candidate with these choices; none if its text in `listed_` was another one.
  std::optional<int32_t> find(const Choices& choices) const {
    const auto found = std::ranges::find(last_->candidates, choices);
    if (found == last_->candidates.end() ||
        text_digest_of(*listed_, choices) != text_digest_of(*last_, choices))
      return std::nullopt;
    return static_cast<int32_t>(found - last_->candidates.begin());
  }

  Result<void> take(const FoundFault& fault) {
    const std::optional<int32_t> candidate = find(fault.choices);
    if (candidate) found_.faults.emplace(*candidate, fault.detail);
    // The default may have had a fault while the list had another default.
    if (!candidate || *candidate == 0) return {};
    return race_.disqualify(*candidate, fault.fault);
  }

  Result<void> take(const Block& block) {
    const std::optional<int32_t> candidate = find(block.choices);
    if (candidate) times_[*candidate].push_back(block.microseconds);
    if (block.place == Place::kDefaultFirst) {
      drop_open();
      open_session_ = session_;
      open_round_ = block.round;
    }
    const bool is_open = block.place == Place::kDefaultFirst || !open_.empty();
    if (!candidate || !is_open || session_ != open_session_ || block.round != open_round_ ||
        (block.place != Place::kCandidate && *candidate != 0)) {
      ++found_.left_out;
      return {};
    }
    open_.push_back({.candidate = *candidate,
                     .microseconds = block.microseconds,
                     .megahertz = block.megahertz,
                     .watts = block.watts});
    return block.place == Place::kDefaultLast ? end_round() : Result<void>{};
  }

  Result<void> end_round() {
    Round round{.default_first_us = open_.front().microseconds,
                .default_last_us = open_.back().microseconds};
    double usual = 0.0;  // the sum of the logarithms
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const TimedBlock& block = open_[i];
      if (block.candidate != 0) {
        round.candidates_us[block.candidate] = block.microseconds;
        continue;
      }
      usual += std::log(block.microseconds);
      if (i > 0 && i + 1 < open_.size()) round.default_inner_us.push_back(block.microseconds);
    }
    if (round.candidates_us.empty()) {
      drop_open();
      return {};
    }
    ++found_.rounds;
    if (ended_in_ != open_session_) found_.session_starts.push_back(found_.rounds);
    ended_in_ = open_session_;
    const double usual_us =
        std::exp(usual / static_cast<double>(round.default_inner_us.size() + 2));
    for (TimedBlock& block : std::exchange(open_, {})) {
      block.round = found_.rounds;
      block.ratio = block.microseconds / usual_us;
      found_.blocks.push_back(block);
    }
    return race_.add_racing(std::move(round));
  }

  void drop_open() {
    found_.left_out += std::ssize(open_);
    open_.clear();
  }

  const CandidateList* last_;
  const CandidateList* listed_;  // the last list so far
  Race race_;
  RaceBlocks found_;
  std::map<int32_t, std::vector<double>> times_;  // of all blocks, by candidate
  std::size_t session_ = 0;                       // of the last event
  std::vector<TimedBlock> open_;  // of the round whose end is still to come, the default's first
  std::size_t open_session_ = 0;
  int32_t open_round_ = 0;
  std::optional<std::size_t> ended_in_;  // the session of the round before
};

// The GPU and the problem that entries of a journal belong to.
using EntryKey = std::pair<std::string_view, std::string_view>;

EntryKey key_of(const Journal& journal, const Entry& entry) {
  return {journal.sessions[entry.session].gpu, entry.problem};
}

}  // namespace

const Choices& ReplayedRace::winner() const {
  return candidates[static_cast<std::size_t>(race.outcome().winner)];
}

bool ReplayedRace::is_decided() const {
  const Outcome outcome = race.outcome();
  return outcome.is_settled && outcome.standings.front().rounds > 0;
}

Result<std::vector<ReplayedRace>> replay(const Journal& journal, const RaceRules& rules) {
  std::vector<EntryKey> order;  // in which the first lists come
  std::map<EntryKey, const CandidateList*> lists;
  for (const Entry& entry : journal.entries)
    if (const auto* const list = std::get_if<CandidateList>(&entry.event))
      if (lists.insert_or_assign(key_of(journal, entry), list).second)
        order.push_back(key_of(journal, entry));
  std::map<EntryKey, RaceTrack> tracks;
  for (const auto& [key, list] : lists) tracks.emplace(key, RaceTrack(*list, rules));
  for (const Entry& entry : journal.entries) {
    const auto track = tracks.find(key_of(journal, entry));
    if (track == tracks.end())
      return fail(Stage::kFile, ErrorCode::kInvalidValue,
                  fmt::format("journal: problem {} has times or faults, but no list of candidates",
                              quote_for_message(entry.problem)),
                  "is the beginning of the journal missing?");
    MOEJIT_TRY(track->second.take(entry.session, entry.event));
  }
  std::vector<ReplayedRace> races;
  for (const auto& [gpu, problem] : order)
    races.push_back(tracks.at({gpu, problem}).finish(gpu, problem));
  return races;
}

}  // namespace moejit::tune
