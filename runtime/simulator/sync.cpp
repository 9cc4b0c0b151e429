// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <algorithm>
#include <fmt/core.h>
#include <vector>

namespace moejit::runtime {

// Barriers and collectives. The rules, from the PTX manual (barrier, exit, shfl, mma):
// - A barrier is executed by whole warps. A warp has arrived when all of its lanes that have not
//   exited wait at it, at one instruction.
// - Barrier 0 without a count waits for all threads of the CTA that have not exited; an exit can
//   therefore complete it. A named barrier waits for the stated number of threads, 32 per warp,
//   and an exit does not lower it.
// - sync_cluster waits for all threads of the cluster that have not exited.
// - sync_warp waits for the lanes that have not exited; the other warp-wide instructions want all
//   32, at one instruction.

void Cta::wait(Waiting waiting, int32_t detail, sim::Site site) {
  threads_[static_cast<std::size_t>(thread())] = {waiting, detail, site};
  maybe_progress();
  fibers_.suspend();
  threads_[static_cast<std::size_t>(thread())].waiting = Waiting::kNot;
}

void Cta::sync_cta(sim::Site site) {
  arrive_at_barrier(cta_of(thread()) * kCtaBarriers, launch_->threads, Waiting::kCta, site);
}

void Cta::sync_cluster(sim::Site site) {
  arrive_at_barrier(kClusterBarrier, thread_count(), Waiting::kCluster, site);
}

void Cta::sync_named(int32_t barrier, int32_t threads, sim::Site site) {
  if (barrier < 1 || barrier > 15) {
    report(site, fmt::format("names barrier {} in sync_named, wanted 1 to 15", barrier));
  }
  const int32_t most = (launch_->threads + sim::kWarpLanes - 1) / sim::kWarpLanes * sim::kWarpLanes;
  if (threads <= 0 || threads % sim::kWarpLanes != 0 || threads > most) {
    report(site, fmt::format("waits for {} threads at barrier {}, wanted a multiple of 32 up to {}",
                             threads, barrier, most));
  }
  const int32_t number = cta_of(thread()) * kCtaBarriers + barrier;
  const Barrier& state = barriers_[static_cast<std::size_t>(number)];
  if (state.warps != 0 && state.threads != threads) {
    report(site,
           fmt::format("waits for {} threads at barrier {}, where thread {} waits for {} ({})",
                       threads, barrier, state.first_thread, state.threads, state.site));
  }
  arrive_at_barrier(number, threads, Waiting::kNamed, site);
}

void Cta::sync_warp(sim::Site site) { arrive_at_barrier(kWarpBarrier, 0, Waiting::kWarp, site); }

void Cta::arrive_at_barrier(int32_t barrier, int32_t threads, Waiting waiting, sim::Site site) {
  const int32_t self = thread();
  Warp& warp = warp_of(self);
  if (warp.at_barrier == 0) {
    warp.barrier = barrier;
    warp.barrier_threads = threads;
    warp.barrier_site = site;
  } else if (warp.barrier != barrier || warp.barrier_threads != threads ||
             warp.barrier_site != site) {
    report(site, fmt::format("comes to a barrier while other lanes of its warp wait at {}; all "
                             "lanes must execute the same one",
                             warp.barrier_site));
  }
  warp.at_barrier |= 1u << (self % sim::kWarpLanes);
  if (warp.at_barrier == warp.alive) warp_arrived(self / sim::kWarpLanes);
  wait(waiting, barrier, site);
}

// Marks the warp as arrived once all of its live lanes wait at its barrier. Returns whether that
// completes the barrier.
bool Cta::warp_arrived(int32_t index) {
  const Warp& warp = warps_[static_cast<std::size_t>(index)];
  if (warp.barrier == kWarpBarrier) {
    release(1u << index, 1u << index);
    return true;
  }
  Barrier& barrier = barriers_[static_cast<std::size_t>(warp.barrier)];
  if (barrier.warps == 0) {
    barrier.threads = warp.barrier_threads;
    barrier.first_thread = index * sim::kWarpLanes + std::countr_zero(warp.at_barrier);
    barrier.site = warp.barrier_site;
  }
  barrier.warps |= 1u << index;
  return complete_if_full(warp.barrier);
}

bool Cta::complete_if_full(int32_t number) {
  Barrier& barrier = barriers_[static_cast<std::size_t>(number)];
  if (barrier.warps == 0) return false;
  const bool is_named = number != kClusterBarrier && number % kCtaBarriers != 0;
  // The threads of barrier 0: all of a CTA, or of the cluster.
  uint32_t all = warps_of(number / kCtaBarriers % kMostCtas);
  if (number == kClusterBarrier) all = warps_of(0) | warps_of(launch_->cluster_ctas - 1);
  const bool is_full = is_named ? std::popcount(barrier.warps) * sim::kWarpLanes >= barrier.threads
                                : barrier.warps == (alive_warps_ & all);
  if (!is_full) return false;
  const uint32_t warps = barrier.warps;
  barrier.warps = 0;
  // Threads that have exited are ordered before what follows a barrier of the whole CTA.
  release(warps, is_named ? warps : all);
  return true;
}

void Cta::release(uint32_t waiting_warps, uint32_t ordered_warps) {
  order_.join(ordered_warps);
  for (uint32_t rest = waiting_warps; rest != 0; rest &= rest - 1) {
    const int32_t index = std::countr_zero(rest);
    Warp& warp = warps_[static_cast<std::size_t>(index)];
    fibers_.wake(index, warp.at_barrier);
    warp.at_barrier = 0;
  }
}

bool Cta::meet(sim::Collective collective, void* lane, sim::Site site) {
  const int32_t self = thread();
  const int32_t number = self % sim::kWarpLanes;
  Warp& warp = warp_of(self);
  if (warp.alive != 0xffffffffu) {
    report(site, fmt::format("executes {}, which wants all 32 lanes, but lane {} of its warp {}",
                             name_of(collective), std::countr_one(warp.alive),
                             launch_->threads % sim::kWarpLanes != 0 &&
                                     self / sim::kWarpLanes == launch_->threads / sim::kWarpLanes
                                 ? "does not exist or has exited"
                                 : "has exited"));
  }
  if (warp.met == 0) {
    warp.collective = collective;
    warp.met_site = site;
  } else if (warp.collective != collective || warp.met_site != site) {
    report(site, fmt::format("executes {} while other lanes of its warp wait in {} at {}; all "
                             "lanes must execute the same instruction",
                             name_of(collective), name_of(warp.collective), warp.met_site));
  }
  warp.lanes[static_cast<std::size_t>(number)] = lane;
  warp.met |= 1u << number;
  if (warp.met == 0xffffffffu) {
    slab_->machine().lanes = warp.lanes.data();
    return true;
  }
  wait(Waiting::kCollective, static_cast<int32_t>(collective), site);
  return false;
}

void Cta::part() {
  const int32_t self = thread();
  Warp& warp = warp_of(self);
  warp.met = 0;
  fibers_.wake(self / sim::kWarpLanes, ~(1u << (self % sim::kWarpLanes)));
}

}  // namespace moejit::runtime
