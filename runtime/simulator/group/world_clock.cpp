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

}  // namespace moejit::runtime
