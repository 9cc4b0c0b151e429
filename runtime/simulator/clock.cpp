// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/clock.h"

#include <algorithm>

namespace moejit::runtime {
namespace {

std::size_t warp_of(int32_t thread) { return static_cast<std::size_t>(thread) / sim::kWarpLanes; }

}  // namespace

void Clock::clear() {
  warps_.fill(0);
  fenced_.fill(0);
  agents_.clear();
  ahead_.clear();
}

// Lists are short, mostly a lane or two of each warp.
const Clock::Ahead* Clock::find(int32_t thread) const {
  const Ahead* first = ahead_.data();
  for (std::size_t count = ahead_.size(); count > 0;) {
    const std::size_t half = count / 2;
    if (first[half].thread == thread) return first + half;
    const bool is_behind = first[half].thread < thread;
    first = is_behind ? first + half + 1 : first;
    count = is_behind ? count - half - 1 : half;
  }
  return nullptr;
}

Clock::Ahead& Clock::entry(int32_t thread) {
  auto found = std::ranges::lower_bound(ahead_, thread, {}, &Ahead::thread);
  if (found == ahead_.end() || found->thread != thread) {
    found = ahead_.insert(found, Ahead{.thread = thread});
  }
  return *found;
}

bool Clock::covers(Stamp past) const {
  const int32_t actor = actor_of(past);
  if (actor >= kFirstAgent) {
    const auto agent = static_cast<std::size_t>(actor - kFirstAgent);
    return agent < agents_.size() && epoch_of(past) < agents_[agent];
  }
  if (epoch_of(past) < warps_[warp_of(actor)]) return true;
  if ((past & kWholeWarp) != 0) return false;
  const Ahead* listed = find(actor);
  return listed != nullptr && epoch_of(past) < listed->before;
}

bool Clock::covers_fenced(Stamp past) const {
  if (is_agent(past)) return true;
  const int32_t thread = actor_of(past);
  if (epoch_of(past) < fenced_[warp_of(thread)]) return true;
  return (past & kWholeWarp) == 0 && epoch_of(past) < fenced_of(thread);
}

uint32_t Clock::fenced_of(int32_t thread) const {
  const Ahead* listed = find(thread);
  return std::max(fenced_[warp_of(thread)], listed == nullptr ? 0 : listed->fenced);
}

// Makes entries of the lanes that only the other clock lists.
void Clock::list_all_of(const Clock& other) {
  std::size_t missing = 0;
  auto own = ahead_.begin();
  for (const Ahead& theirs : other.ahead_) {
    while (own != ahead_.end() && own->thread < theirs.thread) ++own;
    missing += own == ahead_.end() || own->thread != theirs.thread ? 1 : 0;
  }
  if (missing == 0) return;
  // Goes from the back, so that nothing is overwritten before it has moved.
  std::size_t from = ahead_.size();
  std::size_t theirs = other.ahead_.size();
  ahead_.resize(from + missing);
  for (std::size_t to = ahead_.size(); to-- > 0;) {
    const int32_t own_thread = from > 0 ? ahead_[from - 1].thread : -1;
    const int32_t their_thread = theirs > 0 ? other.ahead_[theirs - 1].thread : -1;
    if (own_thread == their_thread) --theirs;
    ahead_[to] = own_thread >= their_thread ? ahead_[--from] : Ahead{.thread = their_thread};
    if (own_thread < their_thread) --theirs;
  }
}

void Clock::join(const Clock& other) {
  for (std::size_t i = 0; i < kMaxWarps; ++i) {
    warps_[i] = std::max(warps_[i], other.warps_[i]);
    fenced_[i] = std::max(fenced_[i], other.fenced_[i]);
  }
  if (agents_.size() < other.agents_.size()) agents_.resize(other.agents_.size());
  for (std::size_t i = 0; i < other.agents_.size(); ++i) {
    agents_[i] = std::max(agents_[i], other.agents_[i]);
  }
  // Looking up a few lanes is quicker than passing all of the own ones.
  if (constexpr std::size_t kFew = 4; other.ahead_.size() <= kFew) {
    for (const Ahead& theirs : other.ahead_) entry(theirs.thread).join(theirs);
    return;
  }
  list_all_of(other);
  auto own = ahead_.begin();
  for (const Ahead& theirs : other.ahead_) {
    while (own->thread < theirs.thread) ++own;
    own->join(theirs);
  }
}

void Clock::meet(const Clock& other) {
  // Keeps what each clock knows of the lanes that either lists, before the numbers of the warps
  // change.
  list_all_of(other);
  auto theirs = other.ahead_.begin();
  for (Ahead& own : ahead_) {
    const std::size_t warp = warp_of(own.thread);
    uint32_t before = other.warps_[warp];
    uint32_t fenced = other.fenced_[warp];
    if (theirs != other.ahead_.end() && theirs->thread == own.thread) {
      before = std::max(before, theirs->before);
      fenced = std::max(fenced, theirs->fenced);
      ++theirs;
    }
    own.before = std::min(std::max(own.before, warps_[warp]), before);
    own.fenced = std::min(std::max(own.fenced, fenced_[warp]), fenced);
  }
  for (std::size_t i = 0; i < kMaxWarps; ++i) {
    warps_[i] = std::min(warps_[i], other.warps_[i]);
    fenced_[i] = std::min(fenced_[i], other.fenced_[i]);
  }
  agents_.resize(std::min(agents_.size(), other.agents_.size()));
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    agents_[i] = std::min(agents_[i], other.agents_[i]);
  }
  prune();
}

void Clock::compact() {
  for (std::size_t first = 0; first < ahead_.size();) {
    const std::size_t warp = warp_of(ahead_[first].thread);
    uint32_t before = UINT32_MAX;
    uint32_t fenced = UINT32_MAX;
    std::size_t end = first;
    for (; end < ahead_.size() && warp_of(ahead_[end].thread) == warp; ++end) {
      before = std::min(before, ahead_[end].before);
      fenced = std::min(fenced, ahead_[end].fenced);
    }
    if (end - first == sim::kWarpLanes) {
      warps_[warp] = std::max(warps_[warp], before);
      fenced_[warp] = std::max(fenced_[warp], fenced);
    }
    first = end;
  }
  prune();
}

void Clock::add_warp(int32_t warp, uint32_t before) {
  uint32_t& own = warps_[static_cast<std::size_t>(warp)];
  own = std::max(own, before);
}

void Clock::add_fenced_warp(int32_t warp, uint32_t before) {
  uint32_t& own = fenced_[static_cast<std::size_t>(warp)];
  own = std::max(own, before);
}

void Clock::add_thread(int32_t thread, uint32_t before) {
  Ahead& own = entry(thread);
  own.before = std::max(own.before, before);
}

void Clock::add_fenced_thread(int32_t thread, uint32_t before) {
  Ahead& own = entry(thread);
  own.fenced = std::max(own.fenced, before);
}

void Clock::add_agent(int32_t agent, uint32_t before) {
  const auto index = static_cast<std::size_t>(agent);
  if (agents_.size() <= index) agents_.resize(index + 1);
  agents_[index] = std::max(agents_[index], before);
}

void Clock::prune() {
  std::erase_if(ahead_, [this](const Ahead& own) {
    const std::size_t warp = warp_of(own.thread);
    return own.before <= warps_[warp] && own.fenced <= fenced_[warp];
  });
}

}  // namespace moejit::runtime
