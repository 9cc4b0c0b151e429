// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/async_copies.h"
#include "runtime/simulator/fibers.h"
#include "runtime/simulator/global_memory.h"
#include "runtime/simulator/kernel_before.h"
#include "runtime/simulator/mbarriers.h"
#include "runtime/simulator/ordering.h"
#include "runtime/simulator/shared_memory.h"
#include "runtime/simulator/warpgroups.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace moejit::runtime {

struct RanksState;
struct RankCta;
struct Trouble;
struct WaitSummary;

// Returns what an access does, for reports: "reads", "writes" or "updates".
const char* verb_of(sim::Access kind);

// The parts of a launch that all of its CTAs share.
struct Launch {
  std::string_view kernel;
  void (*entry)(const void* params) = nullptr;
  std::span<const std::byte> params;
  int32_t ctas = 0;
  int32_t threads = 0;
  int32_t ctas_per_sm = 1;
  int32_t cluster_ctas = 1;  // 1 or 2; `ctas` is a multiple of it
  uint32_t shared_bytes = 0;
  uint64_t seed = 0;
  sim::MmaAddition mma;
  const LaunchMemory* memory = nullptr;
  const KernelBefore* before = nullptr;  // null unless the launch overlaps
};

// Runs one CTA at a time, or one cluster. It has the threads as fibers, shared memory, barriers,
// and the hardware that works beside the threads. Belongs to one host thread. Members that a kernel
// calls run on the calling fiber's stack and do not return if they report.
//
// In a cluster the second CTA's threads are numbered on from the first's, and so are its warps and
// warpgroups. Its shared memory lies behind the first's, at an offset of shared_stride_.
class Cta {
 public:
  explicit Cta(std::unique_ptr<StackSlab> slab);
  ~Cta();

  // Runs a cluster, or without clusters a CTA, to its end; `first` is its first CTA. Returns a
  // sentence about the first rule that it broke, if any. Throws std::bad_alloc.
  std::optional<std::string> run(const Launch& launch, int32_t first);

  // For group/run_in_group.cpp: a CTA of a group's rank runs in parts, between the parts of other
  // CTAs.
  enum class Part { kEnded, kReported, kSetAside };
  void begin(const Launch& launch, int32_t first, std::unique_ptr<RankCta> rank);
  Part go_on();
  bool is_anybody_ready() const { return fibers_.is_anybody_ready(); }
  void wake(int32_t thread) {
    fibers_.wake(thread / sim::kWarpLanes, 1u << (thread % sim::kWarpLanes));
  }
  void add_waits_to(WaitSummary& summary) const;
  std::string take_report() { return std::move(report_); }
  std::string describe_waits() const;
  RankCta* rank() { return rank_.get(); }
  std::unique_ptr<RankCta> take_rank();

  // sync.cpp
  void sync_cta(sim::Site site);
  void sync_cluster(sim::Site site);
  void sync_named(int32_t barrier, int32_t threads, sim::Site site);
  void sync_warp(sim::Site site);
  bool meet(sim::Collective collective, void* lane, sim::Site site);
  void part();

  // access.cpp
  void* access_shared(uint32_t address, uint32_t bytes, sim::Access kind, sim::Site site);
  void* access_global(const void* address, uint32_t bytes, sim::Access kind, sim::Site site);
  void prefetch_global(const void* address, uint32_t bytes, sim::Site site);
  void copy_async(uint32_t destination, const void* source, uint32_t bytes, sim::Site site);
  void copy_operand_async(uint32_t destination, const void* source, uint32_t bytes, sim::Site site);
  void commit_async_copies() { copies_.commit(thread()); }
  void wait_async_copies(int32_t pending_groups);
  void fence_proxy_async() { order_.fence_async(thread()); }
  void fence_proxy_async_global();  // group/symmetric_access.cpp

  // kernel_before.cpp
  void await_kernel_before(sim::Site site);
  void start_kernel_behind(sim::Site site);

  // mbarriers.cpp
  void init_mbarrier(uint32_t address, int32_t arrivals, sim::Site site);
  void fence_mbarrier_init();
  void arrive(uint32_t address, int32_t bytes, sim::Site site);
  void arrive_in_cluster(uint32_t address, int32_t cta, sim::Site site);
  void wait_mbarrier(uint32_t address, uint32_t parity, sim::Site site);
  void arrive_when_copied(uint32_t address, sim::Site site);

  // tensor_copies.cpp
  void load_tensor(uint32_t destination, const void* map, uint32_t barrier, const int32_t* at,
                   int32_t rank, uint32_t ctas, sim::Site site);
  void load_bulk(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier,
                 sim::Site site);
  void prefetch_tensor(const void* map, int32_t rank, sim::Site site);
  void store_tensor(const void* map, uint32_t source, const int32_t* at, int32_t rank,
                    sim::TensorStoreKind kind, sim::Site site);
  void commit_tensor_stores();
  void wait_tensor_stores(int32_t pending_groups);

  // tensor_landing.cpp
  void store_bulk(void* destination, uint32_t source, uint32_t bytes, sim::Site site);
  void land_bulk_stores(int32_t pending_groups);

  // group/system_calls.cpp
  uint32_t load_flag(const void* flag, sim::Site site);
  uint32_t wait_flag(const void* flag, uint32_t wanted, uint64_t deadline, sim::Site site);
  void store_flag(void* flag, uint32_t value, bool is_release, sim::Site site);
  void check_own_flag(const void* flag, sim::Site site);
  uint32_t add_to_flag(void* flag, uint32_t value, sim::Site site);
  void fence_system();
  uint64_t global_nanoseconds(sim::Site site);

  // wgmma.cpp
  void issue_wgmma(const sim::WgmmaLane& lane, sim::Site site);
  void fence_wgmma(sim::Site site);
  void commit_wgmma(sim::Site site);
  void wait_wgmma(int32_t pending_groups, sim::Site site);

  // warpgroups.cpp
  void set_registers(int32_t registers, bool is_claim, sim::Site site);

  [[noreturn]] void report(sim::Site site, std::string what) { report_of(thread(), site, what); }
  // Report a value, or a use, that the hardware does not take.
  void report_value(const char* what, int64_t got, sim::Site site);
  void report_misuse(const char* what, sim::Site site) { report(site, what); }
  // Ends the run from within a thread of it: run() and go_on() then throw std::bad_alloc. The CTA
  // is of no further use.
  [[noreturn]] void stop_without_memory() { fibers_.stop(Fibers::Outcome::kNoMemory); }

 private:
  enum class Waiting : uint8_t {
    kNot,
    kCta,
    kCluster,
    kNamed,
    kWarp,
    kCollective,
    kMbarrier,
    kWarpgroup,
    kFlag,
    kExited,
  };
  struct Thread {
    Waiting waiting = Waiting::kNot;
    // Number of the barrier or the collective. For an mbarrier it is twice the index plus the
    // parity, for a warpgroup eight times the index plus the step. For a flag it is low bits of its
    // address.
    int32_t detail = 0;
    sim::Site site{};
  };
  struct Warp {
    uint32_t alive = 0;
    uint32_t at_barrier = 0;  // lanes that wait at `barrier`; if that is -1, at the warp's
    int32_t barrier = 0;
    int32_t barrier_threads = 0;
    sim::Site barrier_site{};
    uint32_t met = 0;  // lanes that wait at `collective`
    sim::Collective collective{};
    sim::Site met_site{};
    std::array<void*, sim::kWarpLanes> lanes{};
  };
  struct Barrier {
    uint32_t warps = 0;  // warps that have arrived
    int32_t threads = 0;
    int32_t first_thread = 0;
    sim::Site site{};
  };
  // A part of the hardware that works beside the threads. Agents are in the order of their numbers.
  struct Agent {
    enum class Kind : uint8_t { kCopies, kStores, kWgmma };
    Kind kind{};
    int32_t index = 0;  // number of the mbarrier, the thread or the warpgroup
  };
  static constexpr int32_t kMostCtas = 2;  // of a cluster
  // Barrier b of a CTA's 16 is number 16 * CTA + b; two more are not a CTA's.
  static constexpr int32_t kCtaBarriers = 16, kClusterBarrier = kMostCtas * kCtaBarriers;
  static constexpr int32_t kWarpBarrier = -1;

  int32_t thread() const { return fibers_.current(); }
  int32_t thread_count() const { return launch_->cluster_ctas * launch_->threads; }
  int32_t cta_of(int32_t thread) const { return thread >= launch_->threads ? 1 : 0; }
  // Returns the warps of a CTA.
  uint32_t warps_of(int32_t cta) const;
  // Returns where a CTA's shared memory begins. in_cta() turns an offset in the cluster's memory
  // into one in the CTA's.
  uint32_t shared_begin(int32_t cta) const { return static_cast<uint32_t>(cta) * shared_stride_; }
  uint32_t in_cta(uint32_t offset) const {
    return shared_stride_ == 0 ? offset : offset % shared_stride_;
  }
  Actor actor() const { return order_.actor(thread()); }
  Warp& warp_of(int32_t thread) {
    return warps_[static_cast<std::size_t>(thread / sim::kWarpLanes)];
  }
  Warpgroup& warpgroup_of(int32_t thread) {
    return warpgroups_[static_cast<std::size_t>(thread / sim::kWarpgroupThreads)];
  }

  // cta.cpp
  void start(const Launch& launch, int32_t first);
  Fibers::Work work();
  uint64_t seed_of(const Launch& launch);
  void exited();
  [[noreturn]] void report_of(int32_t thread, sim::Site site, std::string& what);
  std::string sentence(int32_t thread, sim::Site site, std::string_view what) const;
  std::optional<std::string> describe_left_over();

  // cta.cpp
  int32_t add_agent(Agent::Kind kind, int32_t index);
  void maybe_progress();
  bool progress();

  // sync.cpp
  void wait(Waiting waiting, int32_t detail, sim::Site site);
  void arrive_at_barrier(int32_t barrier, int32_t threads, Waiting waiting, sim::Site site);
  bool warp_arrived(int32_t warp);
  bool complete_if_full(int32_t barrier);
  void release(uint32_t waiting_warps, uint32_t ordered_warps);

  // describe.cpp
  std::string describe_dead_lock() const;
  std::string describe_place(const Thread& thread, int32_t first) const;

  // access.cpp
  uint32_t shared_offset(uint32_t address, uint32_t bytes, const char* verb, sim::Site site);
  std::string describe(Conflict conflict, const char* verb, uint32_t bytes) const;
  std::string describe_agent(const OtherAccess& other) const;
  void start(AsyncCopy copy);
  void land(const AsyncCopy& copy);
  void move(const AsyncCopy& copy);
  GlobalActor global_actor() const;
  void check_alive(int32_t cta, const char* verb, sim::Site site);

  // kernel_before.cpp
  void check_kernel_before(uintptr_t address, uint64_t bytes, sim::Access kind, sim::Site site);
  std::optional<std::string> describe_ended_without_waiting() const;

  // mbarriers.cpp
  Mbarrier& mbarrier_at(uint32_t address, int32_t cta, const char* verb, sim::Site site);
  void arrive_at(Mbarrier& barrier, int32_t bytes, sim::Site site);
  void complete_if_done(Mbarrier& barrier);
  void land(const AsyncArrival& arrival);

  // tensor_copies.cpp
  TensorCopy make_copy(const void* map, const int32_t* at, int32_t rank, uint32_t address,
                       const char* verb, sim::Site site);
  TensorCopy place_copy(const SimTensorMap& map, uint32_t address, uint32_t alignment,
                        const char* verb, sim::Site site);
  void check_source(const TensorCopy& copy);
  void check_source(uintptr_t address, uint32_t bytes, sim::Site site);
  SimTensorMap tensor_map_at(const void* map, int32_t rank, sim::Site site);
  void load_into(int32_t cta, TensorCopy copy, uint32_t barrier, sim::Site site);
  void start_pieces(const TensorCopy& copy);
  TensorStores& stores_of_thread();
  // tensor_landing.cpp
  void land(const CopyPiece& piece);
  void land_row_of_load(const TensorCopy& copy, int32_t row);
  void land_row_of_store(const TensorCopy& copy, int32_t row);
  void land_stores(int32_t thread, uint32_t before);

  // tensor_landing.cpp
  void take_bulk_row(const TensorCopy& copy, int32_t row);
  std::optional<std::string> land_bulk_row(const BulkRow& row);
  std::optional<std::string> land_all_bulk_rows();

  // group/symmetric_access.cpp
  bool is_symmetric(uintptr_t address) const;
  void* access_symmetric(uintptr_t address, uint32_t bytes, sim::Access kind, sim::Site site);
  void check_symmetric_copy(uintptr_t address, uint32_t bytes, sim::Site site);
  std::optional<std::string> land_symmetric_row(const BulkRow& row);
  std::string describe(const Trouble& trouble, const char* verb, uint64_t bytes) const;
  std::string describe_flag_wait(int32_t thread) const;
  // group/system_calls.cpp
  void put_flag(uintptr_t flag, uint32_t value, bool is_release, sim::Site site);
  uintptr_t flag_at(const void* flag, bool is_write, sim::Site site);
  uint32_t read_flag(uintptr_t flag, sim::Site site);
  void wait_for_change(uintptr_t flag, uint32_t wanted, uint32_t seen, uint64_t deadline,
                       bool is_poll, sim::Site site);
  void order_peer_stores();
  void set_aside_now_and_then();

  // wgmma.cpp
  MatrixOperand operand_of(uint64_t descriptor, const char* name, bool is_mn_major,
                           int32_t elements, sim::Site site);
  MatrixOperand a_of(const sim::WgmmaLane& lane, sim::Site site);
  MatrixOperand b_of(const sim::WgmmaLane& lane, sim::Site site);
  void check_lanes(const Warpgroup& group, sim::Site site);
  void mark_operand(const MatrixOperand& operand, int32_t group, Stamp done, sim::Site site);
  void gather(const MatrixOperand& operand, int32_t cta, unsigned char* packed);
  void carry_out_next(Warpgroup& group);
  void release_registers(const Wgmma& wgmma, int32_t thread, sim::Site site);
  // warpgroups.cpp
  bool meet_warpgroup(WarpgroupStep step, const void* operand, sim::Site site);
  void part_warpgroup(int32_t index);
  void grant_claims();

  std::unique_ptr<StackSlab> slab_;
  Fibers fibers_;
  Ordering order_;
  SharedMemory shared_;
  AsyncCopies copies_;
  Mbarriers mbarriers_;
  TensorCopies tensor_copies_;
  const Launch* launch_ = nullptr;
  int32_t first_cta_ = 0;
  uint32_t shared_stride_ = 0;
  uint32_t alive_warps_ = 0;
  uint32_t haste_ = 0;  // agents take a step once in so many waits; 0: never
  std::array<int32_t, kMostCtas> free_registers_{};
  std::array<Thread, StackSlab::kMaxThreads> threads_{};
  std::array<bool, StackSlab::kMaxThreads> has_awaited_{};  // threads, the kernel before
  std::array<bool, kMostCtas> cta_has_awaited_{};           // one of its threads has
  std::array<Warp, kMaxWarps> warps_{};
  std::array<Warpgroup, kMaxWarps / kWarpgroupWarps> warpgroups_{};
  int32_t wgmmas_under_way_ = 0;  // issued but not carried out
  std::array<Barrier, kClusterBarrier + 1> barriers_{};
  std::vector<Agent> agents_;
  std::unique_ptr<WgmmaBuffers> wgmma_buffers_;
  std::string report_;
  std::unique_ptr<RankCta> rank_;  // null outside of a group
};

// Returns "shuffle_xor" and so on.
const char* name_of(sim::Collective collective);
const char* name_of(WarpgroupStep step);

}  // namespace moejit::runtime
