// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <algorithm>
#include <fmt/core.h>
#include <vector>

namespace moejit::runtime {
namespace {

// Describes the race of an access with an ordinary access of another thread.
std::string race(const std::string& what, const char* verb, const OtherAccess& other) {
  return fmt::format("{} was {} by thread {} at {} with no barrier since (race)", what, verb,
                     actor_of(other.stamp), other.site);
}

}  // namespace

std::string Cta::describe(Conflict conflict, const char* verb, uint32_t bytes) const {
  const OtherAccess& other = shared_.other();
  const std::string what =
      fmt::format("{} {} bytes of shared memory, of which the byte at offset {}", verb, bytes,
                  in_cta(other.offset));
  switch (conflict) {
    case Conflict::kNone: break;
    case Conflict::kUninitialised: return what + " was never written";
    case Conflict::kUnorderedWrite:
      if (is_agent(other.stamp)) return what + describe_agent(other);
      return race(what, "written", other);
    case Conflict::kUnorderedRead:
      if (is_agent(other.stamp)) return what + describe_agent(other);
      return race(what, "read", other);
    case Conflict::kPendingCopy:
      return fmt::format(
          "{} is the target of the asynchronous copy of thread {} at {}, which no "
          "wait_async_copies has completed",
          what, actor_of(other.stamp), other.site);
    case Conflict::kMbarrier:
      return fmt::format("{} is part of the mbarrier that was initialized at {}", what, other.site);
    case Conflict::kNotFenced:
      return fmt::format(
          "{} was written by thread {} at {}, which called no fence_proxy_async between its write "
          "and the barrier",
          what, actor_of(other.stamp), other.site);
    case Conflict::kNotSwizzled:
      return fmt::format(
          "{} was copied at {} in another arrangement than rows of 128 bytes with the 128-byte "
          "swizzle",
          what, other.site);
  }
  return what;
}

// Describes an agent's access to the byte, and what would order it before now.
std::string Cta::describe_agent(const OtherAccess& other) const {
  const Agent& agent = agents_[static_cast<std::size_t>(actor_of(other.stamp) - kFirstAgent)];
  switch (agent.kind) {
    case Agent::Kind::kCopies:
      return fmt::format(
          " is the target of the tensor copy at {}: nothing orders this access after its phase, "
          "number {}, of the mbarrier at offset {}",
          other.site, epoch_of(other.stamp), in_cta(mbarriers_[agent.index].offset));
    case Agent::Kind::kStores:
      return fmt::format(
          " is the source of the tensor store of thread {} at {}: nothing orders this access after "
          "its wait_tensor_stores_read",
          agent.index, other.site);
    case Agent::Kind::kWgmma: break;
  }
  return fmt::format(
      " is an operand of the wgmma of warpgroup {} at {}: nothing orders this access after its "
      "wgmma_wait",
      agent.index, other.site);
}

// Describes where a thread waits; `first` is the first thread that waits there.
std::string Cta::describe_place(const Thread& thread, int32_t first) const {
  switch (thread.waiting) {
    case Waiting::kNamed:
      return fmt::format("sync_named of barrier {}, which wants {} threads",
                         thread.detail % kCtaBarriers,
                         warps_[static_cast<std::size_t>(first / sim::kWarpLanes)].barrier_threads);
    case Waiting::kWarp: return "sync_warp";
    case Waiting::kCollective: return name_of(static_cast<sim::Collective>(thread.detail));
    case Waiting::kMbarrier: {
      const Mbarrier& barrier = mbarriers_[thread.detail / 2];
      return fmt::format(
          "wait for parity {} of the mbarrier at offset {}, whose phase {} lacks {} "
          "of {} arrivals and {} bytes,",
          thread.detail % 2, in_cta(barrier.offset), barrier.phase, barrier.pending,
          barrier.arrivals, barrier.bytes);
    }
    case Waiting::kWarpgroup: {
      const int32_t index = thread.detail / 8;
      const Warpgroup& group = warpgroups_[static_cast<std::size_t>(index)];
      const char* step = name_of(static_cast<WarpgroupStep>(thread.detail % 8));
      if (group.wanted_registers == 0) {
        return fmt::format("{}, where {} threads of warpgroup {} are missing", step,
                           sim::kWarpgroupThreads - group.met, index);
      }
      return fmt::format("{}<{}>, which wants {} registers more, but {} are free,", step,
                         group.wanted_registers,
                         (group.wanted_registers - group.registers) * sim::kWarpgroupThreads,
                         free_registers_[static_cast<std::size_t>(cta_of(first))]);
    }
    case Waiting::kCluster: return "sync_cluster";
    case Waiting::kFlag: return describe_flag_wait(first);
    case Waiting::kNot:
    case Waiting::kCta:
    case Waiting::kExited: break;
  }
  return "sync_cta";
}

std::string Cta::describe_dead_lock() const { return "dead-lock:" + describe_waits(); }

// Lists who waits where, each behind a space.
std::string Cta::describe_waits() const {
  struct Group {
    Thread at;
    int32_t first = 0;
    int32_t count = 0;
  };
  std::vector<Group> groups;
  int32_t exited = 0;
  for (int32_t i = 0; i < thread_count(); ++i) {
    const Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.waiting == Waiting::kExited) {
      ++exited;
      continue;
    }
    auto group = std::ranges::find_if(groups, [&](const Group& other) {
      return other.at.waiting == thread.waiting && other.at.detail == thread.detail &&
             other.at.site == thread.site;
    });
    if (group == groups.end()) group = groups.insert(group, Group{thread, i, 0});
    ++group->count;
  }
  std::string text;
  for (const Group& group : groups) {
    text += fmt::format("{} {} thread{} (the first is {}) wait{} in {} at {}",
                        &group == groups.data() ? "" : ",", group.count,
                        group.count == 1 ? "" : "s", group.first, group.count == 1 ? "s" : "",
                        describe_place(group.at, group.first), group.at.site);
  }
  if (exited > 0) text += fmt::format(", {} of {} threads have exited", exited, thread_count());
  return text;
}

}  // namespace moejit::runtime
