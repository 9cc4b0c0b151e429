// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/group/schedule.h"

#include <algorithm>
#include <fmt/core.h>
#include <new>

namespace moejit::runtime {

void Cta::begin(const Launch& launch, int32_t first, std::unique_ptr<RankCta> rank) {
  rank_ = std::move(rank);
  start(launch, first);
  fibers_.begin(thread_count(), seed_of(launch), work());
}

// Runs until no thread can go on, or the CTA is set aside.
Cta::Part Cta::go_on() {
  switch (fibers_.go_on()) {
    case Fibers::Outcome::kAllExited: {
      std::optional<std::string> left_over = describe_left_over();
      if (!left_over) return Part::kEnded;
      report_ = std::move(*left_over);
      return Part::kReported;
    }
    case Fibers::Outcome::kStopped: return Part::kReported;
    case Fibers::Outcome::kNoMemory: throw std::bad_alloc();
    case Fibers::Outcome::kNobodyReady: break;
  }
  return Part::kSetAside;
}

void Cta::add_waits_to(WaitSummary& summary) const {
  for (int32_t thread = 0; thread < thread_count(); ++thread) {
    const auto index = static_cast<std::size_t>(thread);
    if (threads_[index].waiting != Waiting::kFlag) continue;
    const FlagWait& wait = rank_->waits[index];
    summary.has_poll |= wait.is_poll;
    summary.reads_time |= wait.is_poll && rank_->polls[index].reads_time;
    if (wait.deadline == 0) continue;
    if (summary.deadline == 0 || wait.deadline < summary.deadline) {
      summary.deadline = wait.deadline;
    }
  }
}

std::unique_ptr<RankCta> Cta::take_rank() { return std::move(rank_); }

// What happens when no CTA can go on. Ranks that stand still go on, stores arrive, time passes. If
// nothing of that helps, it is a dead-lock.

namespace {

// How often threads may read a flag again while nothing changes. After the first number time
// passes. After the second, threads that do not look at the time count as waiting for ever.
constexpr int32_t kRoundsBeforeTime = 2;
constexpr int32_t kRoundsWithoutTime = 100;

}  // namespace

// Lets one store arrive that is on its way. Returns whether there was one.
bool Schedule::land_one_late_store() {
  const auto land_from = [&](PeerStores& stores) {
    if (stores.is_empty()) return false;
    stores.land_one(random_, [&](const PeerStore& store) { state_.land(store); });
    return true;
  };
  for (Resident& resident : residents_) {
    if (land_from(resident.cta->rank()->stores)) return true;
  }
  return std::ranges::any_of(streams_, [&](RankStream& stream) {
    return !stream.items.empty() && stream.items.front().launch != nullptr &&
           land_from(stream.items.front().launch->late);
  });
}

// Returns whether somebody may be able to go on now.
bool Schedule::get_going() {
  bool was_still = false;
  for (Rank& rank : ranks_) {
    was_still |= rank.still_until > turn_;
    rank.still_until = 0;
  }
  if (was_still || land_one_late_store()) return true;
  if (state_.flags.changes() != seen_changes_) {
    seen_changes_ = state_.flags.changes();
    idle_rounds_ = 0;
    state_.time.something_happened();
  }
  WaitSummary waits;
  for (const Resident& resident : residents_) {
    if (!is_dead(resident.stream->rank)) resident.cta->add_waits_to(waits);
  }
  const bool has_time = waits.deadline != 0 || waits.reads_time;
  if (waits.has_poll && idle_rounds_ < (has_time ? kRoundsBeforeTime : kRoundsWithoutTime)) {
    ++idle_rounds_;
    state_.flags.wake_all();
    return true;
  }
  idle_rounds_ = 0;
  if (!has_time || !state_.time.pass(waits.deadline, waits.reads_time)) return false;
  state_.flags.wake_all();
  return true;
}

std::string Schedule::describe_dead_lock() const {
  std::string text = "dead-lock of the group:";
  auto add = [&, is_first = true](const std::string& part) mutable {
    text += (is_first ? " " : "; ") + part;
    is_first = false;
  };
  for (const Resident& resident : residents_) {
    const CtaRun& run = state_.runs[resident.cta->rank()->knowledge.run()];
    if (is_dead(run.rank)) continue;
    add(fmt::format("rank {}, kernel {}, CTA {}:{}", run.rank, run.kernel, run.cta,
                    resident.cta->describe_waits()));
  }
  for (const RankStream& stream : streams_) {
    if (stream.items.empty() || is_dead(stream.rank)) continue;
    if (const Meeting* const meeting = stream.items.front().meeting.get(); meeting != nullptr)
      add(fmt::format("rank {} waits for the others in {}", stream.rank, meeting->name()));
    const RankLaunch* launch = stream.items.front().launch.get();
    if (launch == nullptr || launch->placed == launch->order.size()) continue;
    add(
        fmt::format("{} of the {} CTAs of kernel {} find no room on the SMs of rank {} beside "
                    "those that wait",
                    launch->order.size() - launch->placed, launch->order.size(),
                    launch->prepared->launch.kernel, stream.rank));
  }
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    if (is_dead(rank)) {
      add(fmt::format("rank {} was killed", rank));
    } else if (is_idle(rank)) {
      add(fmt::format("rank {} has nothing to run", rank));
    }
  }
  return text;
}

}  // namespace moejit::runtime
