// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"

#include "runtime/simulator/calls.h"
#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/site_format.h"

#include <algorithm>
#include <fmt/core.h>
#include <new>

namespace moejit::runtime {
namespace {

constexpr int32_t kSmRegisters = 65536;
// A thread may be compiled with at most 255 registers; they are allocated in units of 8.
constexpr int32_t kMaxRegisters = 248;

int32_t registers_at_start(const Launch& launch) {
  const int32_t warps = (launch.threads + sim::kWarpLanes - 1) / sim::kWarpLanes;
  const int32_t share = kSmRegisters / (warps * sim::kWarpLanes * std::max(launch.ctas_per_sm, 1));
  return std::min(share / 8 * 8, kMaxRegisters);
}

}  // namespace

Cta::Cta(std::unique_ptr<StackSlab> slab) : slab_(std::move(slab)), fibers_(*slab_) {}

Cta::~Cta() = default;

uint32_t Cta::warps_of(int32_t cta) const {
  const int32_t warps = (launch_->threads + sim::kWarpLanes - 1) / sim::kWarpLanes;
  return static_cast<uint32_t>((uint64_t{1} << warps) - 1) << (cta * warps);
}

void Cta::start(const Launch& launch, int32_t first) {
  launch_ = &launch;
  first_cta_ = first;
  shared_stride_ = (launch.shared_bytes + 1023) / 1024 * 1024;
  // The last CTA's memory ends where the launch says, so that all behind it is out of bounds.
  const uint32_t shared_bytes = shared_begin(launch.cluster_ctas - 1) + launch.shared_bytes;
  sim::Machine& machine = slab_->machine();
  machine.calls = &calls_of_cta();
  machine.owner = this;
  machine.cta = first;
  machine.cta_count = launch.ctas;
  machine.thread_count = launch.threads;
  machine.mma = launch.mma;
  order_.reset(thread_count());
  shared_.reset(shared_bytes);
  copies_.reset(thread_count());
  mbarriers_.reset(shared_bytes);
  tensor_copies_.reset();
  agents_.clear();
  barriers_.fill({});
  warps_.fill({});
  for (Warpgroup& group : warpgroups_) {
    group = {};
    group.registers = registers_at_start(launch);
  }
  has_awaited_.fill(false);
  cta_has_awaited_.fill(false);
  free_registers_.fill(0);
  wgmmas_under_way_ = 0;
  alive_warps_ = 0;
  for (int32_t thread = 0; thread < thread_count(); ++thread) {
    threads_[static_cast<std::size_t>(thread)] = {};
    warp_of(thread).alive |= 1u << (thread % sim::kWarpLanes);
    alive_warps_ |= 1u << (thread / sim::kWarpLanes);
  }
}

// Returns the functions that the threads run.
Fibers::Work Cta::work() {
  return {.body =
              [](void* self) {
                const Launch& running = *static_cast<Cta*>(self)->launch_;
                running.entry(running.params.data());
              },
          .on_exit = [](void* self) { static_cast<Cta*>(self)->exited(); },
          .on_idle = [](void* self) { return static_cast<Cta*>(self)->progress(); },
          .context = this};
}

// Returns the seed of the threads' order and chooses how quick agents are. Each CTA has a seed of
// its own, so that it runs the same whichever host thread runs it.
uint64_t Cta::seed_of(const Launch& launch) {
  Random random(launch.seed ^ (static_cast<uint64_t>(first_cta_) << 32));
  const uint64_t seed = random.next();
  constexpr std::array<uint32_t, 4> kHastes{1, 8, 64, 0};
  haste_ = kHastes[random.below(4)];
  return seed;
}

std::optional<std::string> Cta::run(const Launch& launch, int32_t first) {
  start(launch, first);
  const Fibers::Outcome outcome = fibers_.run(thread_count(), seed_of(launch), work());
  switch (outcome) {
    case Fibers::Outcome::kAllExited: return describe_left_over();
    case Fibers::Outcome::kStopped: return std::move(report_);
    case Fibers::Outcome::kNoMemory: throw std::bad_alloc();
    case Fibers::Outcome::kNobodyReady: break;
  }
  const std::string whose = launch.cluster_ctas == 1
                                ? fmt::format("CTA {}", first)
                                : fmt::format("CTA {} and CTA {}", first, first + 1);
  return fmt::format("kernel {}, {}: {}", launch.kernel, whose, describe_dead_lock());
}

// Ends the current thread, which has returned from the kernel.
void Cta::exited() {
  const int32_t self = thread();
  const int32_t index = self / sim::kWarpLanes;
  if (const TensorStores* own = tensor_copies_.find(self); own != nullptr) {
    if (!own->not_waited.empty()) {
      report(
          own->not_waited.front().site,
          fmt::format("exits while this tensor store may still read shared memory: {} is missing",
                      own->not_waited.front().group == own->committed ? "commit_tensor_stores"
                                                                      : "wait_tensor_stores_read"));
    }
  }
  Warp& warp = warp_of(self);
  threads_[static_cast<std::size_t>(self)].waiting = Waiting::kExited;
  warp.alive &= ~(1u << (self % sim::kWarpLanes));
  if (warp.alive == 0) {
    alive_warps_ &= ~(1u << index);
    if (!complete_if_full(cta_of(self) * kCtaBarriers)) complete_if_full(kClusterBarrier);
  } else if (warp.at_barrier == warp.alive) {
    warp_arrived(index);
  }
}

// Describes copies into shared memory that outlive the CTA and would land in the memory of the next
// CTA.
std::optional<std::string> Cta::describe_left_over() {
  if (std::optional<std::string> trouble = land_all_bulk_rows()) return trouble;
  if (std::optional<std::string> trouble = describe_ended_without_waiting()) return trouble;
  for (const Mbarrier& barrier : mbarriers_.all()) {
    if (barrier.waited_phases >= barrier.copied_phases) continue;
    return sentence(barrier.last_copy.thread, barrier.last_copy.site,
                    fmt::format("the CTA ends and nobody has waited for this copy to complete on "
                                "the mbarrier at offset {}",
                                in_cta(barrier.offset)));
  }
  return std::nullopt;
}

std::string Cta::sentence(int32_t thread, sim::Site site, std::string_view what) const {
  const int32_t cta = cta_of(thread);
  const std::string rank = rank_ == nullptr ? "" : fmt::format("rank {}, ", rank_->rank);
  return fmt::format("{}kernel {}, CTA {}, thread {}, {}: {}", rank, launch_->kernel,
                     first_cta_ + cta, thread - cta * launch_->threads, site, what);
}

void Cta::report_value(const char* what, int64_t got, sim::Site site) {
  report(site, fmt::format("{} is {}, which the hardware does not take", what, got));
}

// Reports an error of a thread. Fibers are not unwound: `what` is emptied, so that it holds no
// memory when it is forgotten.
void Cta::report_of(int32_t thread, sim::Site site, std::string& what) {
  report_ = sentence(thread, site, what);
  std::string().swap(what);
  fibers_.stop();
}

// The hardware that works beside the threads. Tensor copies go one piece at a time and in any
// order, and so do arrivals behind copies of threads. WGMMAs go in the order of their warpgroup. It
// takes a step now and then when a thread waits, and whenever no thread can go on. How often
// differs from CTA to CTA, so that both early and late completion are tried. Work that a wait of
// the program covers is carried out there at the latest.

int32_t Cta::add_agent(Agent::Kind kind, int32_t index) {
  agents_.push_back({kind, index});
  return order_.add_agent();
}

void Cta::maybe_progress() {
  if (tensor_copies_.pieces.empty() && copies_.arrivals.empty() && wgmmas_under_way_ == 0) return;
  if (haste_ != 0 && fibers_.random().below(haste_) == 0) progress();
}

// Takes one step of the hardware. Returns false if nothing is under way.
bool Cta::progress() {
  std::vector<CopyPiece>& pieces = tensor_copies_.pieces;
  std::vector<AsyncArrival>& arrivals = copies_.arrivals;
  auto choices = static_cast<uint32_t>(pieces.size() + arrivals.size());
  for (const Warpgroup& group : warpgroups_) choices += group.done < group.wgmmas.size() ? 1 : 0;
  if (choices == 0) return false;
  uint32_t choice = fibers_.random().below(choices);
  if (choice < pieces.size()) {
    std::swap(pieces[choice], pieces.back());
    const CopyPiece piece = pieces.back();
    pieces.pop_back();
    land(piece);
    return true;
  }
  choice -= static_cast<uint32_t>(pieces.size());
  if (choice < arrivals.size()) {
    std::swap(arrivals[choice], arrivals.back());
    const AsyncArrival arrival = std::move(arrivals.back());
    arrivals.pop_back();
    land(arrival);
    return true;
  }
  choice -= static_cast<uint32_t>(arrivals.size());
  for (Warpgroup& group : warpgroups_) {
    if (group.done == group.wgmmas.size()) continue;
    if (choice-- == 0) {
      carry_out_next(group);
      return true;
    }
  }
  return false;
}

}  // namespace moejit::runtime
