// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

// PTX: arrivals and bytes of an mbarrier are counted in 20 bits.
constexpr int32_t kMaxCount = (1 << 20) - 1;

}  // namespace

void Cta::init_mbarrier(uint32_t address, int32_t arrivals, sim::Site site) {
  const uint32_t offset = shared_offset(address, 8, "initializes an mbarrier in", site);
  if (arrivals < 1 || arrivals > kMaxCount) {
    report(site, fmt::format("initializes an mbarrier with {} arrivals, wanted 1 to {}", arrivals,
                             kMaxCount));
  }
  if (const Mbarrier* live = mbarriers_.find(offset)) {
    report(site, fmt::format("initializes the mbarrier at offset {}, which was initialized at {} "
                             "and may be in use",
                             in_cta(offset), live->init_site));
  }
  const Conflict conflict = shared_.write(offset, 8, actor(), site, false);
  if (conflict != Conflict::kNone) {
    report(site, describe(conflict, "initializes an mbarrier in", 8));
  }
  shared_.make_mbarrier(offset);
  Mbarrier& barrier = mbarriers_.add(offset);
  barrier.offset = offset;
  barrier.arrivals = arrivals;
  barrier.pending = arrivals;
  barrier.initialised = actor().stamp;
  barrier.init_site = site;
  barrier.agent = add_agent(Agent::Kind::kCopies, mbarriers_.index_of(barrier));
}

void Cta::fence_mbarrier_init() {
  for (Mbarrier& barrier : mbarriers_.all()) {
    if (actor_of(barrier.initialised) == thread()) barrier.is_visible_to_copies = true;
  }
}

// Returns the mbarrier at an address in the shared memory of a CTA of the cluster.
Mbarrier& Cta::mbarrier_at(uint32_t address, int32_t cta, const char* verb, sim::Site site) {
  const int32_t own = cta_of(thread());
  const uint32_t offset =
      shared_offset(address, 8, verb, site) - shared_begin(own) + shared_begin(cta);
  Mbarrier* barrier = mbarriers_.find(offset);
  if (barrier == nullptr) {
    report(site, fmt::format("{} the mbarrier at offset {}, which no thread has initialized", verb,
                             in_cta(offset)));
  }
  if (!actor().is_after(barrier->initialised)) {
    report(site,
           fmt::format("{} the mbarrier at offset {}, which thread {} initialized at {} with "
                       "no barrier since (race)",
                       verb, in_cta(offset), actor_of(barrier->initialised), barrier->init_site));
  }
  return *barrier;
}

void Cta::arrive(uint32_t address, int32_t bytes, sim::Site site) {
  arrive_at(mbarrier_at(address, cta_of(thread()), "arrives at", site), bytes, site);
}

void Cta::arrive_in_cluster(uint32_t address, int32_t cta, sim::Site site) {
  check_alive(cta, "arrives at an mbarrier of", site);
  arrive_at(mbarrier_at(address, cta, "arrives at", site), 0, site);
}

void Cta::arrive_at(Mbarrier& barrier, int32_t bytes, sim::Site site) {
  if (bytes < 0 || barrier.bytes + bytes > kMaxCount) {
    report(site, fmt::format("announces {} bytes at the mbarrier at offset {}, where {} are "
                             "pending; wanted 0 to {} in all",
                             bytes, in_cta(barrier.offset), barrier.bytes, kMaxCount));
  }
  if (barrier.pending == 0) {
    report(site,
           fmt::format("arrives at the mbarrier at offset {}, whose phase {} has all of its "
                       "{} arrivals already and waits for {} bytes",
                       in_cta(barrier.offset), barrier.phase, barrier.arrivals, barrier.bytes));
  }
  order_.release(thread(), barrier.arriving);
  barrier.bytes += bytes;
  --barrier.pending;
  complete_if_done(barrier);
}

// The phase cannot end before: it expects one arrival more. What the copies write is known to
// whoever waits for the phase, as of copies of the hardware.
void Cta::arrive_when_copied(uint32_t address, sim::Site site) {
  Mbarrier& barrier = mbarrier_at(address, cta_of(thread()), "arrives at", site);
  ++barrier.pending;
  barrier.last_copy = {thread(), site};
  barrier.copied_phases = barrier.phase + 1;
  copies_.arrivals.push_back({.barrier = mbarriers_.index_of(barrier),
                              .phase = barrier.phase,
                              .copies = copies_.take(thread())});
}

void Cta::land(const AsyncArrival& arrival) {
  Mbarrier& barrier = mbarriers_[arrival.barrier];
  const Stamp done = Ordering::agent_stamp(barrier.agent, arrival.phase);
  for (const AsyncCopy& copy : arrival.copies) {
    if (!copy.has_landed) move(copy);
    shared_.end_copy(copy.offset, copy.bytes, done);
  }
  --barrier.pending;
  complete_if_done(barrier);
}

void Cta::complete_if_done(Mbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  if (barrier.bytes_under_way > 0) {
    std::string what = fmt::format(
        "copies more bytes than were announced at the mbarrier at offset {}: its phase "
        "{} is complete with {} bytes still under way",
        in_cta(barrier.offset), barrier.phase, barrier.bytes_under_way);
    report_of(barrier.last_copy.thread, barrier.last_copy.site, what);
  }
  barrier.completed.join(barrier.arriving);
  barrier.completed.add_agent(barrier.agent, barrier.phase + 1);
  barrier.completed.compact();
  barrier.arriving.clear();
  barrier.pending = barrier.arrivals;
  ++barrier.phase;
  for (const int32_t waiter : barrier.waiters) {
    fibers_.wake(waiter / sim::kWarpLanes, 1u << (waiter % sim::kWarpLanes));
  }
  barrier.waiters.clear();
}

// Waits for a phase. The hardware looks at the parity only: a thread that wakes after one more
// phase has completed goes on waiting.
void Cta::wait_mbarrier(uint32_t address, uint32_t parity, sim::Site site) {
  if (parity > 1) report(site, fmt::format("waits for parity {}, wanted 0 or 1", parity));
  const int32_t index =
      mbarriers_.index_of(mbarrier_at(address, cta_of(thread()), "waits for", site));
  while ((mbarriers_[index].phase & 1u) == parity) {
    mbarriers_[index].waiters.push_back(thread());
    wait(Waiting::kMbarrier, 2 * index + static_cast<int32_t>(parity), site);
  }
  Mbarrier& barrier = mbarriers_[index];
  barrier.waited_phases = std::max(barrier.waited_phases, barrier.phase);
  if (barrier.phase > 0) {
    order_.acquire(thread(), barrier.completed, static_cast<uint64_t>(index) << 32 | barrier.phase);
  }
}

}  // namespace moejit::runtime
