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

inline constexpr uint32_t kMachineVersion = 1;
inline constexpr uintptr_t kSlabBytes = uintptr_t{1} << 27;
// Shared addresses do not start at 0, as on the hardware, where the system keeps the first KiB.
inline constexpr uint32_t kSharedBase = 1024;
inline constexpr int32_t kWarpLanes = 32;

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
  kAtomic,
};

// Instructions that all 32 lanes of a warp execute together.
enum class Collective : uint32_t {
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kBallot,
  kMatchAny,
  kLoadMatrices,
  kMma,
};

struct Machine;

// What the simulator does for a kernel. Whatever breaks a rule of the hardware ends the launch
// with a report; the call then never returns.
struct Calls {
  // Checks an access and gives the host address of its bytes.
  void* (*access_shared)(Machine*, uint32_t address, uint32_t bytes, Access, Site);
  void* (*access_global)(Machine*, const void* address, uint32_t bytes, Access, Site);

  // `source` may be null: zeros.
  void (*copy_async)(Machine*, uint32_t destination, const void* source, uint32_t bytes, Site);
  void (*commit_async_copies)(Machine*);
  void (*wait_async_copies)(Machine*, int32_t pending_groups);

  void (*sync_cta)(Machine*, Site);
  void (*sync_named)(Machine*, int32_t barrier, int32_t threads, Site);
  void (*sync_warp)(Machine*, Site);

  // The calling lane waits for the others at `collective`, with its operands in `lane`. True in
  // the last lane to come: it does the work for the whole warp on Machine::lanes and then calls
  // part(), which lets the others go. They get false.
  bool (*meet)(Machine*, Collective collective, void* lane, Site);
  void (*part)(Machine*);

  // An operand that the hardware does not take. Does not return.
  void (*invalid)(Machine*, const char* what, int64_t got, Site);
};

struct Machine {
  const Calls* calls;
  int32_t thread;  // that runs now
  int32_t thread_count;
  int32_t cta;
  int32_t cta_count;
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
  void (*entry)(const void* params);
};

inline Machine* machine() {
  return reinterpret_cast<Machine*>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &
                                    ~(kSlabBytes - 1));
}

}  // namespace moejit::sim
