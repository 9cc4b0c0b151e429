// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"

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

}  // namespace moejit::runtime
