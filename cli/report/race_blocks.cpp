// SPDX-License-Identifier: Apache-2.0
#include "cli/report/race_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

namespace moejit::cli {
namespace {

using tune::Block;
using tune::CandidateList;
using tune::Place;

// Follows the events of one race through a journal.
class Follower {
 public:
  Follower(const tune::ReplayedRace& race, const CandidateList& last) : race_(race), last_(last) {}

  void take(std::size_t session, const tune::Event& event) {
    if (const auto* const list = std::get_if<CandidateList>(&event)) listed_ = list;
    if (const auto* const fault = std::get_if<tune::FoundFault>(&event))
      if (const std::optional<int32_t> candidate = find(fault->choices))
        found_.faults.emplace(*candidate, fault);
    if (const auto* const block = std::get_if<Block>(&event)) take_block(session, *block);
  }

  RaceBlocks finish() {
    drop_open();
    return std::move(found_);
  }

 private:
  // Returns the candidate with these choices, unless its text was another one by the list before.
  std::optional<int32_t> find(const compiler::Choices& choices) const {
    const auto place = std::ranges::find(race_.candidates, choices);
    if (place == race_.candidates.end() || listed_ == nullptr ||
        text_digest_of(*listed_, choices) != text_digest_of(last_, choices))
      return std::nullopt;
    return static_cast<int32_t>(place - race_.candidates.begin());
  }

  void take_block(std::size_t session, const Block& block) {
    if (block.place == Place::kDefaultFirst) {
      drop_open();
      session_ = session;
      number_ = block.round;
    }
    const std::optional<int32_t> candidate = find(block.choices);
    const bool is_open = block.place == Place::kDefaultFirst || !open_.empty();
    if (!candidate || !is_open || session != session_ || block.round != number_ ||
        (block.place != Place::kCandidate && *candidate != 0)) {
      ++found_.left_out;
      return;
    }
    open_.push_back({.candidate = *candidate,
                     .microseconds = block.microseconds,
                     .megahertz = block.megahertz,
                     .watts = block.watts});
    if (block.place == Place::kDefaultLast) end_round();
  }

  void end_round() {
    double usual = 0.0;  // the sum of the logarithms
    int32_t usual_blocks = 0;
    for (const TimedBlock& block : open_) {
      if (block.candidate != 0) continue;
      usual += std::log(block.microseconds);
      ++usual_blocks;
    }
    if (std::ssize(open_) == usual_blocks) return drop_open();
    const double usual_us = std::exp(usual / usual_blocks);
    ++found_.rounds;
    if (!ended_in_ || *ended_in_ != session_) found_.session_starts.push_back(found_.rounds);
    ended_in_ = session_;
    for (TimedBlock& block : open_) {
      block.round = found_.rounds;
      block.ratio = block.microseconds / usual_us;
      found_.blocks.push_back(block);
    }
    open_.clear();
  }

  void drop_open() {
    found_.left_out += static_cast<int64_t>(open_.size());
    open_.clear();
  }

  const tune::ReplayedRace& race_;
  const CandidateList& last_;
  const CandidateList* listed_ = nullptr;  // the last one so far
  std::vector<TimedBlock> open_;           // of the round whose end is still to come
  std::size_t session_ = 0;                // of that round
  int32_t number_ = 0;                     // of that round in its session
  std::optional<std::size_t> ended_in_;    // the session of the round before
  RaceBlocks found_;
};

}  // namespace

RaceBlocks blocks_of(const tune::Journal& journal, const tune::ReplayedRace& race) {
  const auto is_of_race = [&](const tune::Entry& entry) {
    return entry.problem == race.problem && journal.sessions[entry.session].gpu == race.gpu;
  };
  CandidateList last;
  for (const tune::Entry& entry : journal.entries)
    if (const auto* const list = std::get_if<CandidateList>(&entry.event))
      if (is_of_race(entry)) last = *list;
  Follower follower(race, last);
  for (const tune::Entry& entry : journal.entries)
    if (is_of_race(entry)) follower.take(entry.session, entry.event);
  return follower.finish();
}

}  // namespace moejit::cli
