// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a simulated kernel and the simulator know of each other. The kernel is a shared object that
// the host compiler made from the emitted text and moejit_sim/ptx/; the simulator is in
// runtime/simulator/. Both include this file and nothing else of each other, so it stays free of
// everything but fixed-width integers.
//
// Each CUDA thread runs as a fiber. The stacks of all fibers of a CTA lie in one slab that is
// aligned to its own size; the Machine is at the slab's first byte, so a kernel finds it by masking
// the address of its stack frame, without thread-local storage.

#include <cstdint>

namespace moejit::sim {

inline constexpr uint32_t kMachineVersion = 13;
inline constexpr uintptr_t kSlabBytes = uintptr_t{1} << 27;
// Shared addresses do not start at 0, as on the hardware, where the system keeps the first KiB.
inline constexpr uint32_t kSharedBase = 1024;
inline constexpr int32_t kWarpLanes = 32;
inline constexpr int32_t kWarpgroupThreads = 128;

// A place in the kernel's source: pointer to the file's name in the low 48 bits, line above.
struct Site {
  uint64_t packed;

  // As a default argument: where the function that has it is called.
  static Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {(static_cast<uint64_t>(static_cast<uint16_t>(line)) << 48) |
            (reinterpret_cast<uintptr_t>(file) & 0xffff'ffff'ffffu)};
  }
  const char* file() const {
    return reinterpret_cast<const char*>(static_cast<uintptr_t>(packed & 0xffff'ffff'ffffu));
  }
  int32_t line() const { return static_cast<int32_t>(packed >> 48); }
  bool operator==(const Site&) const = default;
};

enum class Access : uint32_t {
  kRead,
  kWarpRead,  // the data goes to other lanes of the warp too
  kWrite,
  kWarpWrite,  // the data comes from other lanes of the warp too
  kAtomic,
  kOperandRead,  // as kWarpRead, of rows of an operand: unwritten ones give sums that nobody reads
};

// What a tensor store does with global memory.
enum class TensorStoreKind : uint32_t {
  kWrite,
  kAddF32,
};

// Instructions that all 32 lanes of a warp execute together.
enum class Collective : uint32_t {
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kBallot,
  kMatchAny,
  kLoadMatrices,
  kStoreMatrices,
  kMma,
  kWgmmaFence,
  kWgmmaCommit,
  kWgmmaWait,
};

// What a thread's part of the sums of WGMMA knows of itself; beside the sums, in the thread's
// memory.
struct SumState {
  int32_t in_flight = 0;     // WGMMAs into it that were started and not waited for
  bool is_defined = false;   // one was started
  bool is_fenced = false;    // nobody has touched it since wgmma_fence()
  bool is_readable = false;  // named in the wgmma_wait() after which none was in flight
  Site issued{};             // the last one
};

// What a thread's registers of A know of themselves; beside the words, in the thread's memory.
struct RegisterState {
  int32_t in_flight = 0;  // WGMMAs that read them, were started and not waited for
  bool is_pinned = true;  // named in the wgmma_wait() after which none was in flight
  Site issued{};          // the last one
};

// The formats of WGMMA's operands: either is one of 8 bits, or both are kBf16.
enum class OperandFormat : uint32_t {
  kE4m3,
  kE5m2,
  kBf16,
};

// A WGMMA as one thread issues it.
struct WgmmaLane {
  float* sums;
  SumState* state;
  uint64_t a;               // descriptor, unless A is in registers
  const uint32_t* a_words;  // [4]: A's; null: A is in shared memory
  RegisterState* a_state;   // of these words
  uint64_t b;               // descriptor
  int32_t columns;
  OperandFormat a_format;
  OperandFormat b_format;
  bool accumulate;
  bool is_a_mn_major;
  bool is_b_mn_major;
};

// How mma.sync adds: `products` products at once, with `fraction` bits behind the first one of the
// largest term.
struct MmaAddition {
  int32_t products = 16;
  int32_t fraction = 25;
};

struct Machine;

// What the simulator does for a kernel. Whatever breaks a rule of the hardware ends the launch
// with a report; the call then never returns.
struct Calls {
  // Checks an access and gives the host address of its bytes.
  void* (*access_shared)(Machine*, uint32_t address, uint32_t bytes, Access, Site);
  void* (*access_global)(Machine*, const void* address, uint32_t bytes, Access, Site);
  void (*prefetch_global)(Machine*, const void* address, uint32_t bytes, Site);

  // `source` may be null: zeros.
  void (*copy_async)(Machine*, uint32_t destination, const void* source, uint32_t bytes, Site);
  // Bytes that nothing has written are copied as NaN, which nobody may use.
  void (*copy_operand_async)(Machine*, uint32_t destination, const void* source, uint32_t bytes,
                             Site);
  void (*commit_async_copies)(Machine*);
  void (*wait_async_copies)(Machine*, int32_t pending_groups);

  void (*sync_cta)(Machine*, Site);
  void (*sync_cluster)(Machine*, Site);
  void (*sync_named)(Machine*, int32_t barrier, int32_t threads, Site);
  void (*sync_warp)(Machine*, Site);

  // The calling lane waits for the others at `collective`, with its operands in `lane`. True in
  // the last lane to come: it does the work for the whole warp on Machine::lanes and then calls
  // part(), which lets the others go. They get false.
  bool (*meet)(Machine*, Collective collective, void* lane, Site);
  void (*part)(Machine*);

  // mbarriers. An arrival announces `bytes`.
  void (*init_mbarrier)(Machine*, uint32_t address, int32_t arrivals, Site);
  void (*fence_mbarrier_init)(Machine*);
  void (*arrive)(Machine*, uint32_t address, int32_t bytes, Site);
  void (*arrive_in_cluster)(Machine*, uint32_t address, int32_t cta, Site);
  void (*wait)(Machine*, uint32_t address, uint32_t parity, Site);
  // The phase expects one more arrival, which comes when the copies of copy_async() that the thread
  // has started are complete.
  void (*arrive_when_copied)(Machine*, uint32_t address, Site);

  // Tensor copies; `at` has `rank` coordinates. Without any, only the map is looked at. A load goes
  // to the CTAs of the cluster whose bits are set in `ctas`; 0: to the calling thread's own.
  void (*load_tensor)(Machine*, uint32_t destination, const void* map, uint32_t barrier,
                      const int32_t* at, int32_t rank, uint32_t ctas, Site);
  // A copy of bytes in a row; their number and both addresses are multiples of 16.
  void (*load_bulk)(Machine*, uint32_t destination, const void* source, uint32_t bytes,
                    uint32_t barrier, Site);
  void (*prefetch_tensor)(Machine*, const void* map, const int32_t* at, int32_t rank, Site);
  void (*store_tensor)(Machine*, const void* map, uint32_t source, const int32_t* at, int32_t rank,
                       TensorStoreKind kind, Site);
  void (*commit_tensor_stores)(Machine*);
  void (*wait_tensor_stores)(Machine*, int32_t pending_groups);
  void (*fence_proxy_async)(Machine*);
  void (*fence_proxy_async_global)(Machine*);

  // Copies bytes from shared to global memory. The store joins the groups of tensor stores. The
  // bytes are there once land_bulk_stores() has followed wait_tensor_stores().
  void (*store_bulk)(Machine*, void* destination, uint32_t source, uint32_t bytes, Site);
  void (*land_bulk_stores)(Machine*, int32_t pending_groups);

  // Flags of ranks: words of 4 bytes. load_flag() and wait_flag() acquire; the latter returns once
  // the value is at or past `wanted` or the time at `deadline`, if that is not 0.
  uint32_t (*load_flag)(Machine*, const void* flag, Site);
  uint32_t (*wait_flag)(Machine*, const void* flag, uint32_t wanted, uint64_t deadline, Site);
  void (*store_flag)(Machine*, void* flag, uint32_t value, bool is_release, Site);
  // Adds to a flag, acquires and releases. Returns what it was.
  uint32_t (*add_to_flag)(Machine*, void* flag, uint32_t value, Site);
  // Reports a flag of another rank, which scope .gpu does not reach.
  void (*check_own_flag)(Machine*, const void* flag, Site);
  void (*fence_system)(Machine*);
  uint64_t (*global_nanoseconds)(Machine*, Site);

  // Launches that overlap, see moejit_device/ptx/overlap.cuh.
  void (*await_kernel_before)(Machine*, Site);
  void (*start_kernel_behind)(Machine*, Site);

  // Warpgroups. All of these wait for the other lanes of the warp, the first and the last one for
  // the whole warpgroup.
  void (*issue_wgmma)(Machine*, const WgmmaLane*, Site);
  void (*fence_wgmma)(Machine*, Site);
  void (*commit_wgmma)(Machine*, Site);
  void (*wait_wgmma)(Machine*, int32_t pending_groups, Site);
  void (*set_registers)(Machine*, int32_t registers, bool is_claim, Site);

  // An operand that the hardware does not take; a rule broken, in words. Neither returns.
  void (*invalid)(Machine*, const char* what, int64_t got, Site);
  void (*misuse)(Machine*, const char* what, Site);
};

// All CTAs of a cluster share a machine; without clusters it belongs to one CTA.
struct Machine {
  const Calls* calls;
  int32_t thread;        // that runs now; the cluster's second CTA counts on from the first
  int32_t thread_count;  // of a CTA
  int32_t cta;           // the cluster's first
  int32_t cta_count;
  MmaAddition mma;
  void* const* lanes;                       // see Calls::meet
  void* fibers;                             // the simulator's own
  void* owner;                              // likewise
  alignas(64) unsigned char scratch[8192];  // for the lane that works for its warp
};

// What a shared object says of its kernel, under the name <entry>_description.
struct KernelDescription {
  uint32_t machine_version;
  uint32_t params_bytes;
  uint32_t params_alignment;
  int32_t max_threads;
  int32_t ctas_per_sm;  // that the compiler keeps registers for
  int32_t cluster_ctas;
  void (*entry)(const void* params);
};

inline Machine* machine() {
  return reinterpret_cast<Machine*>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &
                                    ~(kSlabBytes - 1));
}

}  // namespace moejit::sim
