// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/async_copies.h"
#include "runtime/simulator/fibers.h"
#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/ordering.h"
#include "runtime/simulator/shared_memory.h"

#include <array>
#include <optional>
#include <string>

namespace moejit::runtime {

// What all CTAs of a launch have in common.
struct Launch {
  std::string_view kernel;
  void (*entry)(const void* params) = nullptr;
  const void* params = nullptr;
  int32_t ctas = 0;
  int32_t threads = 0;
  uint32_t shared_bytes = 0;
  uint64_t seed = 0;
  const LaunchMemory* memory = nullptr;
};

// One CTA at a time: its threads as fibers, its shared memory, its barriers. Belongs to one host
// thread. Members that a kernel's calls reach run on the calling fiber's stack and do not return
// where they report.
class Cta {
 public:
  explicit Cta(std::unique_ptr<StackSlab> slab);

  // Runs CTA `index` to its end. A sentence about the first rule that it broke, if any.
  std::optional<std::string> run(const Launch& launch, int32_t index);

  // sync.cpp
  void sync_cta(sim::Site site);
  void sync_named(int32_t barrier, int32_t threads, sim::Site site);
  void sync_warp(sim::Site site);
  bool meet(sim::Collective collective, void* lane, sim::Site site);
  void part();

  // access.cpp
  void* access_shared(uint32_t address, uint32_t bytes, sim::Access kind, sim::Site site);
  void* access_global(const void* address, uint32_t bytes, sim::Access kind, sim::Site site);
  void copy_async(uint32_t destination, const void* source, uint32_t bytes, sim::Site site);
  void commit_async_copies() { copies_.commit(thread()); }
  void wait_async_copies(int32_t pending_groups);

  [[noreturn]] void report(sim::Site site, std::string what);

 private:
  enum class Waiting : uint8_t { kNot, kCta, kNamed, kWarp, kCollective, kExited };
  struct Thread {
    Waiting waiting = Waiting::kNot;
    int32_t detail = 0;  // number of the barrier, or the collective
    sim::Site site{};
  };
  struct Warp {
    uint32_t alive = 0;
    uint32_t at_barrier = 0;  // lanes that wait at `barrier`; -1: barrier of the warp
    int32_t barrier = 0;
    int32_t barrier_threads = 0;
    sim::Site barrier_site{};
    uint32_t met = 0;  // lanes that wait at `collective`
    sim::Collective collective{};
    sim::Site met_site{};
    std::array<void*, sim::kWarpLanes> lanes{};
  };
  struct Barrier {
    uint32_t warps = 0;  // that have arrived
    int32_t threads = 0;
    int32_t first_thread = 0;
    sim::Site site{};
  };
  static constexpr int32_t kWarpBarrier = -1;

  int32_t thread() const { return fibers_.current(); }
  Warp& warp_of(int32_t thread) {
    return warps_[static_cast<std::size_t>(thread / sim::kWarpLanes)];
  }
  void start(const Launch& launch, int32_t index);
  void wait(Waiting waiting, int32_t detail, sim::Site site);
  void arrive(int32_t barrier, int32_t threads, Waiting waiting, sim::Site site);
  bool warp_arrived(int32_t warp);
  bool complete_if_full(int32_t barrier);
  void release(uint32_t waiting_warps, uint32_t ordered_warps);
  void exited();
  std::string describe_dead_lock() const;
  std::string describe(Conflict conflict, const char* verb, uint32_t bytes) const;
  uint32_t shared_offset(uint32_t address, uint32_t bytes, const char* verb, sim::Site site);
  void land(const AsyncCopy& copy);
  GlobalActor global_actor() const { return {index_, order_.stamp(thread()), &order_}; }

  std::unique_ptr<StackSlab> slab_;
  Fibers fibers_;
  Ordering order_;
  SharedMemory shared_;
  AsyncCopies copies_;
  const Launch* launch_ = nullptr;
  int32_t index_ = 0;
  uint32_t alive_warps_ = 0;
  std::array<Thread, StackSlab::kMaxThreads> threads_{};
  std::array<Warp, kMaxWarps> warps_{};
  std::array<Barrier, 16> barriers_{};
  std::string report_;
};

// "shuffle_xor" and so on.
const char* name_of(sim::Collective collective);

}  // namespace moejit::runtime
