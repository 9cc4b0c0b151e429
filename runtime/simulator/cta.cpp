// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"

#include "runtime/simulator/site_format.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

Cta& cta_of(sim::Machine* machine) { return *static_cast<Cta*>(machine->owner); }

constexpr sim::Calls kCalls{
    .access_shared =
        [](sim::Machine* m, uint32_t address, uint32_t bytes, sim::Access kind, sim::Site site) {
          return cta_of(m).access_shared(address, bytes, kind, site);
        },
    .access_global =
        [](sim::Machine* m, const void* address, uint32_t bytes, sim::Access kind, sim::Site site) {
          return cta_of(m).access_global(address, bytes, kind, site);
        },
    .copy_async = [](sim::Machine* m, uint32_t destination, const void* source, uint32_t bytes,
                     sim::Site site) { cta_of(m).copy_async(destination, source, bytes, site); },
    .commit_async_copies = [](sim::Machine* m) { cta_of(m).commit_async_copies(); },
    .wait_async_copies =
        [](sim::Machine* m, int32_t pending_groups) {
          cta_of(m).wait_async_copies(pending_groups);
        },
    .sync_cta = [](sim::Machine* m, sim::Site site) { cta_of(m).sync_cta(site); },
    .sync_named = [](sim::Machine* m, int32_t barrier, int32_t threads,
                     sim::Site site) { cta_of(m).sync_named(barrier, threads, site); },
    .sync_warp = [](sim::Machine* m, sim::Site site) { cta_of(m).sync_warp(site); },
    .meet = [](sim::Machine* m, sim::Collective collective, void* lane,
               sim::Site site) { return cta_of(m).meet(collective, lane, site); },
    .part = [](sim::Machine* m) { cta_of(m).part(); },
    .invalid =
        [](sim::Machine* m, const char* what, int64_t got, sim::Site site) {
          cta_of(m).report(site,
                           fmt::format("{} is {}, which the hardware does not take", what, got));
        },
};

}  // namespace

const char* name_of(sim::Collective collective) {
  switch (collective) {
    case sim::Collective::kShuffle: return "shuffle";
    case sim::Collective::kShuffleXor: return "shuffle_xor";
    case sim::Collective::kShuffleUp: return "shuffle_up";
    case sim::Collective::kBallot: return "ballot";
    case sim::Collective::kMatchAny: return "match_any";
    case sim::Collective::kLoadMatrices: return "load_matrices";
    case sim::Collective::kMma: return "mma";
  }
  return "a collective";
}

Cta::Cta(std::unique_ptr<StackSlab> slab) : slab_(std::move(slab)), fibers_(*slab_) {}

void Cta::start(const Launch& launch, int32_t index) {
  launch_ = &launch;
  index_ = index;
  sim::Machine& machine = slab_->machine();
  machine.calls = &kCalls;
  machine.owner = this;
  machine.cta = index;
  machine.cta_count = launch.ctas;
  machine.thread_count = launch.threads;
  order_.reset();
  shared_.reset(launch.shared_bytes);
  copies_.reset(launch.threads);
  barriers_.fill({});
  warps_.fill({});
  alive_warps_ = 0;
  for (int32_t thread = 0; thread < launch.threads; ++thread) {
    threads_[static_cast<std::size_t>(thread)] = {};
    warp_of(thread).alive |= 1u << (thread % sim::kWarpLanes);
    alive_warps_ |= 1u << (thread / sim::kWarpLanes);
  }
}

std::optional<std::string> Cta::run(const Launch& launch, int32_t index) {
  start(launch, index);
  // A seed of its own, so that a CTA runs the same whichever host thread runs it.
  const uint64_t seed = Random(launch.seed ^ (static_cast<uint64_t>(index) << 32)).next();
  const Fibers::Outcome outcome = fibers_.run(
      launch.threads, seed,
      [](void* self) {
        const Launch& running = *static_cast<Cta*>(self)->launch_;
        running.entry(running.params);
      },
      [](void* self) { static_cast<Cta*>(self)->exited(); }, this);
  switch (outcome) {
    case Fibers::Outcome::kAllExited: return std::nullopt;
    case Fibers::Outcome::kStopped: return std::move(report_);
    case Fibers::Outcome::kNobodyReady: break;
  }
  return fmt::format("kernel {}, CTA {}: {}", launch.kernel, index, describe_dead_lock());
}

// Fibers are not unwound: `what` is moved from, so that it holds no memory when it is forgotten.
void Cta::report(sim::Site site, std::string what) {
  report_ = fmt::format("kernel {}, CTA {}, thread {}, {}: {}", launch_->kernel, index_, thread(),
                        site, what);
  std::string().swap(what);
  fibers_.stop();
}

}  // namespace moejit::runtime
