// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/world_clock.h"

#include <algorithm>

namespace moejit::runtime {

bool WorldClock::knows_launch(const CtaRun& run) const {
  const auto stream = static_cast<std::size_t>(run.stream);
  return stream < launches_.size() && run.position < launches_[stream];
}

bool WorldClock::covers(const CtaRun& run, const AccessRecord& past) const {
  if (knows_launch(run)) return true;
  const auto found = std::ranges::lower_bound(runs_, past.run, {}, &Known::run);
  return found != runs_.end() && found->run == past.run && found->clock.covers(past.stamp);
}

void WorldClock::join(const WorldClock& other) {
  if (launches_.size() < other.launches_.size()) launches_.resize(other.launches_.size());
  for (std::size_t i = 0; i < other.launches_.size(); ++i) {
    launches_[i] = std::max(launches_[i], other.launches_[i]);
  }
  for (const Known& theirs : other.runs_) add_run(theirs.run, theirs.clock);
}

void WorldClock::add_run(uint32_t run, const Clock& clock) {
  auto found = std::ranges::lower_bound(runs_, run, {}, &Known::run);
  if (found == runs_.end() || found->run != run) {
    runs_.insert(found, Known{run, clock});
  } else {
    found->clock.join(clock);
  }
}

void WorldClock::add_launches(int32_t stream, uint32_t before) {
  const auto index = static_cast<std::size_t>(stream);
  if (launches_.size() <= index) launches_.resize(index + 1);
  launches_[index] = std::max(launches_[index], before);
}

void WorldClock::prune(const std::vector<CtaRun>& runs) {
  std::erase_if(runs_, [&](const Known& known) { return knows_launch(runs[known.run]); });
}

template <typename IsOrdered>
bool CtaKnowledge::knows_if(const AccessRecord& past, const Actor& now,
                            IsOrdered is_ordered) const {
  if (past.run == 0 || past.is_several) return true;
  if (past.run == run_) return now.is_after(past.stamp);
  const CtaRun& run = runs_[past.run];
  if (base_->covers(run, past)) return true;
  // The last acquisitions are the likeliest.
  return std::any_of(learned_.rbegin(), learned_.rend(), [&](const Learned& learned) {
    return learned.clock.covers(run, past) && is_ordered(learned);
  });
}

bool CtaKnowledge::knows(const AccessRecord& past, const Actor& now) const {
  return knows_if(past, now, [&](const Learned& learned) { return now.is_after(learned.at); });
}

bool CtaKnowledge::knows_for_copies(const AccessRecord& past, const Actor& now) const {
  return knows_if(past, now, [&](const Learned& learned) {
    return std::ranges::any_of(learned.fences, [&](Stamp fence) { return now.is_after(fence); });
  });
}

void CtaKnowledge::fence_copies(const Actor& now) {
  for (Learned& learned : learned_) {
    const bool is_new = learned.fences.empty() || learned.fences.back() != now.stamp;
    if (is_new && now.is_after(learned.at)) learned.fences.push_back(now.stamp);
  }
}

bool CtaKnowledge::knows_cta(uint32_t hash, Stamp past, const Actor& now) const {
  const CtaRun& own = runs_[run_];
  const auto is_meant = [&](uint32_t run) {
    const CtaRun& other = runs_[run];
    return other.stream == own.stream && other.position == own.position &&
           KnownCtas::hash(other.cta) == hash;
  };
  return std::any_of(learned_.rbegin(), learned_.rend(), [&](const Learned& learned) {
    return learned.clock.covers_any(is_meant, past) && now.is_after(learned.at);
  });
}

void CtaKnowledge::acquire(const Actor& now, const WorldClock& told) {
  // If something is ordered after one access of a thread's epoch, it is ordered after all of them.
  const auto same = std::ranges::find_if(learned_, [&](const Learned& learned) {
    return learned.at == now.stamp && learned.fences.empty();
  });
  if (same == learned_.end()) {
    learned_.push_back({.at = now.stamp, .clock = told, .fences = {}});
  } else {
    same->clock.join(told);
  }
}

std::shared_ptr<const WorldClock> CtaKnowledge::release(const Actor& now, const Clock& own) const {
  auto clock = std::make_shared<WorldClock>(*base_);
  for (const Learned& learned : learned_) {
    if (now.is_after(learned.at)) clock->join(learned.clock);
  }
  clock->add_run(run_, own);
  clock->prune(runs_);
  return clock;
}

void CtaKnowledge::add_all_to(WorldClock& clock) const {
  clock.join(*base_);
  for (const Learned& learned : learned_) clock.join(learned.clock);
}

}  // namespace moejit::runtime
