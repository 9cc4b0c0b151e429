// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/site_format.h"

#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

// Ordinary accesses of a CTA to memory of the group. Who accessed what is recorded when a thread
// executes the access; what it stores to a peer's memory may arrive much later.

namespace {

// Describes the thread of another CTA that made an access.
std::string describe_thread(const RanksState& group, const AccessRecord& record) {
  const CtaRun& run = group.runs[record.run];
  return fmt::format("rank {}, kernel {}, CTA {}, thread {}", run.rank, run.kernel, run.cta,
                     actor_of(record.stamp));
}

}  // namespace

bool Cta::is_symmetric(uintptr_t address) const { return rank_->group.memory->holds(address); }

// Returns where the bytes are, or for a store to a peer, where they wait to arrive.
void* Cta::access_symmetric(uintptr_t address, uint32_t bytes, sim::Access kind, sim::Site site) {
  set_aside_now_and_then();
  RanksState& group = rank_->group;
  SymmetricMemory& memory = *group.memory;
  const bool is_read = kind == sim::Access::kRead;
  if (is_read ? !launch_->memory->contains(address, bytes)
              : !launch_->memory->is_writable(address, bytes)) {
    report(site, launch_->memory->explain(address, bytes, kind, global_actor()));
  }
  const auto land = [&](const PeerStore& store) { group.land(store); };
  const bool is_peer = memory.owner_of(address) != rank_->rank;
  if (is_peer && kind != sim::Access::kWrite) rank_->stores.land_overlapping(address, bytes, land);
  const Accessor who{rank_->knowledge, actor(), site};
  const std::optional<Trouble> trouble = is_read ? memory.read(address, bytes, who)
                                         : kind == sim::Access::kWrite
                                             ? memory.write(address, bytes, who)
                                             : memory.update(address, bytes, who);
  if (trouble) report(site, describe(*trouble, verb_of(kind), bytes));
  if (is_read) return reinterpret_cast<void*>(address);
  if (kind == sim::Access::kWrite) {
    if (is_peer) {
      return rank_->stores.add(address, bytes, who.actor.stamp, fibers_.random(), land);
    }
    memory.mark_landed(address, bytes);
    group.flags.forget(address, bytes);
  }
  group.flags.changed(address, bytes);
  return reinterpret_cast<void*>(address);
}

// Copies that the thread starts from now on may read what it has learned from flags so far.
void Cta::fence_proxy_async_global() {
  if (rank_ != nullptr) rank_->knowledge.fence_copies(actor());
}

// Checks the source of a tensor copy or bulk load.
void Cta::check_symmetric_copy(uintptr_t address, uint32_t bytes, sim::Site site) {
  const std::optional<Trouble> trouble = rank_->group.memory->read(
      address, bytes,
      {.knowledge = rank_->knowledge, .actor = actor(), .site = site, .is_copy = true});
  if (trouble) report(site, describe(*trouble, "copies", bytes));
}

std::optional<std::string> Cta::land_symmetric_row(const BulkRow& row) {
  const Accessor who{rank_->knowledge, order_.actor(row.thread), row.site};
  constexpr uint32_t kBytes = 16;
  RanksState& group = rank_->group;
  if (const auto trouble = group.memory->write(row.address, kBytes, who)) {
    return describe(*trouble, "writes", kBytes);
  }
  PeerStore store{row.address, kBytes, who.actor.stamp, {}};
  std::memcpy(store.value, row.bytes.data(), kBytes);
  group.land(store);
  return std::nullopt;
}

std::string Cta::describe(const Trouble& trouble, const char* verb, uint64_t bytes) const {
  const RanksState& group = rank_->group;
  const AccessRecord& other = trouble.other;
  const std::string what = fmt::format("{} {} bytes of memory of rank {}, of which {}", verb, bytes,
                                       group.memory->owner_of(trouble.address),
                                       launch_->memory->place_of(trouble.address));
  if (trouble.kind == Trouble::Kind::kUnwritten) return what + " was never written";
  if (trouble.kind == Trouble::Kind::kStale) {
    return fmt::format("{} was written by {} at {} in an older epoch and by nobody since (stale)",
                       what, describe_thread(group, other), other.site);
  }
  if (trouble.kind == Trouble::Kind::kNotFenced) {
    return fmt::format(
        "{} was written by {} at {}: a flag was acquired since, but no fence_proxy_async_global "
        "orders copies behind that",
        what, describe_thread(group, other), other.site);
  }
  const char* done = trouble.kind == Trouble::Kind::kWritten ? "written" : "read";
  if (other.run == rank_->knowledge.run()) {
    return fmt::format("{} was {} by thread {} at {} with no barrier since (race)", what, done,
                       actor_of(other.stamp), other.site);
  }
  return fmt::format(
      "{} was {} by {} at {}: no release and acquire of a flag orders "
      "the two (race)",
      what, done, describe_thread(group, other), other.site);
}

std::string Cta::describe_flag_wait(int32_t thread) const {
  const FlagWait& wait = rank_->waits[static_cast<std::size_t>(thread)];
  if (wait.flag == 0) return "global_nanoseconds, for time to pass,";
  const RanksState& group = rank_->group;
  const Flags::Told* told = group.flags.find(wait.flag);
  const std::string wanted = wait.is_poll ? std::string("load_acquire_system for another value")
                                          : fmt::format("wait_system for {:#x}", wait.wanted);
  const std::string writer =
      told == nullptr ? std::string("which no rank has raised,")
                      : fmt::format("which {} wrote last at {},",
                                    describe_thread(group, told->writer), told->writer.site);
  return fmt::format("{} in {} of rank {}, where {:#x} is, {}", wanted,
                     launch_->memory->place_of(wait.flag), group.memory->owner_of(wait.flag),
                     wait.seen, writer);
}

}  // namespace moejit::runtime
