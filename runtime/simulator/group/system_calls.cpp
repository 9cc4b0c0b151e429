// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"

#include <chrono>
#include <fmt/core.h>

namespace moejit::runtime {

// What kernels do with flags of ranks. A store that releases leaves what its thread knows beside
// the flag, and a load that acquires takes it from there.

namespace {

// How often in a row a thread may read the same flag, or the same time, before it counts as
// waiting.
constexpr int32_t kPolls = 2;
constexpr int32_t kTimePolls = 16;

}  // namespace

// Sets the CTA aside now and then, so that others run between any two accesses. A thread that reads
// ordinary memory until it changes must not keep them from running.
void Cta::set_aside_now_and_then() {
  constexpr uint32_t kMostAccesses = 1000;
  const uint32_t odds = rank_->pause_odds;
  const bool is_chosen = odds != 0 && fibers_.random().below(odds) == 0;
  if (!is_chosen && ++rank_->accesses < kMostAccesses) return;
  rank_->accesses = 0;
  fibers_.set_aside();
}

uintptr_t Cta::flag_at(const void* flag, bool is_write, sim::Site site) {
  const auto address = reinterpret_cast<uintptr_t>(flag);
  if (address % 4 != 0) {
    report(site,
           fmt::format("uses a flag at address {:#x}, which is not a multiple of 4", address));
  }
  if (!is_symmetric(address)) {
    report(site, fmt::format("uses a flag at {}, which is not memory of the group",
                             launch_->memory->place_of(address)));
  }
  const bool is_inside =
      is_write ? launch_->memory->is_writable(address, 4) : launch_->memory->contains(address, 4);
  if (!is_inside) {
    const sim::Access kind = is_write ? sim::Access::kWrite : sim::Access::kRead;
    report(site, launch_->memory->explain(address, 4, kind, global_actor()));
  }
  return address;
}

// Reads a flag and takes what it released.
uint32_t Cta::read_flag(uintptr_t flag, sim::Site site) {
  RanksState& group = rank_->group;
  if (const auto trouble = group.memory->find_unwritten(flag, 4)) {
    report(site, describe(*trouble, "reads a flag of", 4));
  }
  const Flags::Told* told = group.flags.find(flag);
  if (told != nullptr && told->clock != nullptr) rank_->knowledge.acquire(actor(), *told->clock);
  return *reinterpret_cast<const uint32_t*>(flag);
}

void Cta::wait_for_change(uintptr_t flag, uint32_t wanted, uint32_t seen, uint64_t deadline,
                          bool is_poll, sim::Site site) {
  rank_->waits[static_cast<std::size_t>(thread())] = {flag, wanted, seen, deadline, is_poll};
  rank_->group.flags.add_waiter(flag, *this, thread());
  wait(Waiting::kFlag, static_cast<int32_t>(flag & 0x7fffffffu), site);
}

uint32_t Cta::wait_flag(const void* flag, uint32_t wanted, uint64_t deadline, sim::Site site) {
  const auto has_come = [&](uint32_t value) { return static_cast<int32_t>(value - wanted) >= 0; };
  if (rank_ == nullptr) {
    const uint32_t value = load_flag(flag, site);
    if (has_come(value)) return value;
    report(site, fmt::format("waits for {:#x} in a flag that holds {:#x}: outside of a group of "
                             "ranks nobody raises it",
                             wanted, value));
  }
  set_aside_now_and_then();
  const uintptr_t address = flag_at(flag, false, site);
  for (;;) {
    const uint32_t value = read_flag(address, site);
    const bool is_over = deadline != 0 && rank_->group.time.now() >= deadline;
    if (has_come(value) || is_over) return value;
    wait_for_change(address, wanted, value, deadline, false, site);
  }
}

uint32_t Cta::load_flag(const void* flag, sim::Site site) {
  if (rank_ == nullptr) {
    return __atomic_load_n(static_cast<uint32_t*>(access_global(flag, 4, sim::Access::kRead, site)),
                           __ATOMIC_ACQUIRE);
  }
  set_aside_now_and_then();
  const uintptr_t address = flag_at(flag, false, site);
  LastPoll& last = rank_->polls[static_cast<std::size_t>(thread())];
  uint32_t value = read_flag(address, site);
  if (last.flag == address && last.value == value && ++last.times >= kPolls) {
    wait_for_change(address, value, value, 0, true, site);
    value = read_flag(address, site);
  }
  if (last.flag != address || last.value != value) {
    last = {address, value, last.time, 0, 0, false};
  }
  return value;
}

// Lets stores to peers arrive that are ordered before what this thread does next.
void Cta::order_peer_stores() {
  const Actor now = actor();
  rank_->stores.land_if([&](const PeerStore& store) { return now.is_after(store.stamp); },
                        [&](const PeerStore& store) { rank_->group.land(store); });
}

uint32_t Cta::add_to_flag(void* flag, uint32_t value, sim::Site site) {
  if (rank_ == nullptr) {
    return __atomic_fetch_add(
        static_cast<uint32_t*>(access_global(flag, 4, sim::Access::kAtomic, site)), value,
        __ATOMIC_ACQ_REL);
  }
  set_aside_now_and_then();
  const uint32_t old = read_flag(flag_at(flag, true, site), site);
  // What this thread has just learned is part of what it releases.
  put_flag(flag_at(flag, true, site), old + value, true, site);
  return old;
}

void Cta::store_flag(void* flag, uint32_t value, bool is_release, sim::Site site) {
  if (rank_ == nullptr) {
    __atomic_store_n(static_cast<uint32_t*>(access_global(flag, 4, sim::Access::kAtomic, site)),
                     value, __ATOMIC_RELEASE);
    return;
  }
  set_aside_now_and_then();
  put_flag(flag_at(flag, true, site), value, is_release, site);
}

void Cta::check_own_flag(const void* flag, sim::Site site) {
  if (rank_ == nullptr) return;
  const int32_t owner = rank_->group.memory->owner_of(flag_at(flag, false, site));
  if (owner == rank_->rank) return;
  report(site, fmt::format("uses a flag in {} of rank {} with scope .gpu, which does not reach "
                           "another rank",
                           launch_->memory->place_of(reinterpret_cast<uintptr_t>(flag)), owner));
}

void Cta::put_flag(uintptr_t address, uint32_t value, bool is_release, sim::Site site) {
  RanksState& group = rank_->group;
  if (is_release) fence_system();
  const Accessor who{rank_->knowledge, actor(), site};
  group.memory->write_flag(address, who);
  *reinterpret_cast<uint32_t*>(address) = value;
  group.flags.tell(address, {rank_->fenced[static_cast<std::size_t>(thread())],
                             {who.actor.stamp, site, rank_->knowledge.run(), 0xf, false}});
  group.flags.changed(address, 4);
}

void Cta::fence_system() {
  if (rank_ == nullptr) return;
  order_peer_stores();
  const Actor now = actor();
  Clock own;
  order_.release(thread(), own);
  rank_->fenced[static_cast<std::size_t>(thread())] = rank_->knowledge.release(now, own);
}

uint64_t Cta::global_nanoseconds(sim::Site site) {
  if (rank_ == nullptr) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }
  const VirtualTime& time = rank_->group.time;
  LastPoll& last = rank_->polls[static_cast<std::size_t>(thread())];
  last.reads_time = true;
  if (last.time != time.now()) last.time_reads = 0;
  if (++last.time_reads > kTimePolls) {
    last.time_reads = 0;
    wait_for_change(0, 0, 0, 0, true, site);
  }
  last.time = time.now();
  return last.time;
}

}  // namespace moejit::runtime
