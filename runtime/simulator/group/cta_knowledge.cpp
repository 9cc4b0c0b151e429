// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/cta_knowledge.h"

#include <algorithm>

namespace moejit::runtime {

bool CtaKnowledge::knows(const AccessRecord& past, const Actor& now) const {
  if (past.run == 0 || past.is_several) return true;
  if (past.run == run_) return now.is_after(past.stamp);
  const CtaRun& run = runs_[past.run];
  if (base_->covers(run, past)) return true;
  // The last acquisitions are the likeliest.
  return std::any_of(learned_.rbegin(), learned_.rend(), [&](const Learned& learned) {
    return learned.clock.covers(run, past) && now.is_after(learned.at);
  });
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
  // Whoever is ordered after one access of a thread's epoch is ordered after all of them.
  const auto same = std::ranges::find(learned_, now.stamp, &Learned::at);
  if (same == learned_.end()) {
    learned_.push_back({now.stamp, told});
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
