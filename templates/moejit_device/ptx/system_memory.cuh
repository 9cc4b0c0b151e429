// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that GPUs of one host share: a rank's kernels write the memory of others (peers) over the
// link, then raise a flag there, and wait for flags in their own memory. (PTX ISA, "Memory
// Consistency Model", scope .sys.)
//
// The writer: all threads store; sync_cta(); one thread calls store_release_system() for the flag.
// The reader: a thread waits for the flag with wait_system() or load_acquire_system(); sync_warp()
// or sync_cta(); then the others may read as well, with load_peer_data(). A flag is a word of 32
// bits that holds an epoch and only grows, modulo 2^32, so nobody sets it back.
//
// Flags between the CTAs of one rank take scope .gpu: a release of .sys waits for all that is on
// the wire to peers.

#include "moejit_device/ptx/clock.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

// Reads a flag. What its writer released with the value is visible to this thread from now on, and
// behind a barrier to others.
MOEJIT_DEVICE uint32_t load_acquire_system(GlobalPtr<const uint32_t> flag) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(flag.address) : "memory");
  return value;
}

// Writes a flag, in any rank's memory. What this thread did before, and what others did before a
// barrier with it, is visible to whoever acquires the value. Bulk stores have to be waited for
// with wait_bulk_stores() before.
MOEJIT_DEVICE void store_release_system(GlobalPtr<uint32_t> flag, uint32_t value) {
  asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(flag.address), "r"(value) : "memory");
}

// Writes a flag without a fence of its own: it releases what this thread's last fence_system()
// ordered. One fence then serves flags of several peers.
MOEJIT_DEVICE void store_relaxed_system(GlobalPtr<uint32_t> flag, uint32_t value) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(flag.address), "r"(value) : "memory");
}

// Writes a flag of this rank that its own CTAs wait for. Releases, as store_release_system() does.
MOEJIT_DEVICE void store_release_own(GlobalPtr<uint32_t> flag, uint32_t value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag.address), "r"(value) : "memory");
}

// Adds `value` to a word of this rank and returns what it was. Whoever adds later has what this
// thread did before, and others before a barrier with it, behind itself.
MOEJIT_DEVICE uint32_t fetch_add_ordered(GlobalPtr<uint32_t> flag, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(flag.address), "r"(value)
               : "memory");
  return old;
}

// Orders this thread's accesses so far, and what barriers ordered before them, before its later
// ones, as all ranks see them.
MOEJIT_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Loads data that a peer may have written while this kernel ran, and that is read once: not kept in
// L1, and never by the non-coherent path. The flag that tells of it has been acquired before.
template <typename T>
MOEJIT_DEVICE T load_peer_data(GlobalPtr<const T> pointer) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
  T value;
  auto* word = reinterpret_cast<uint32_t*>(&value);
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.global.L1::no_allocate.b32 %0, [%1];"
                 : "=r"(word[0])
                 : "l"(pointer.address)
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(pointer.address)
                 : "memory");
  } else {
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(pointer.address)
                 : "memory");
  }
  return value;
}

// Returns whether a flag's value is at or past `wanted`, modulo 2^32.
MOEJIT_DEVICE bool has_reached(uint32_t value, uint32_t wanted) {
  return static_cast<int32_t>(value - wanted) >= 0;
}

// Waits until a flag is at or past `wanted`, modulo 2^32, or until global_nanoseconds() has reached
// `deadline`; 0: no deadline. Acquires, and returns the value that it read last, which
// has_reached() judges.
MOEJIT_DEVICE uint32_t wait_system(GlobalPtr<const uint32_t> flag, uint32_t wanted,
                                   uint64_t deadline) {
  for (;;) {
    const uint32_t value = load_acquire_system(flag);
    if (has_reached(value, wanted)) return value;
    if (deadline != 0 && global_nanoseconds() >= deadline) return value;
    asm volatile("nanosleep.u32 20;" ::: "memory");
  }
}

// Waits until a flag that store_release_own() writes is at or past `wanted`, modulo 2^32. Acquires,
// and returns the value.
MOEJIT_DEVICE uint32_t wait_own(GlobalPtr<const uint32_t> flag, uint32_t wanted) {
  for (;;) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
                 : "=r"(value)
                 : "l"(flag.address)
                 : "memory");
    if (has_reached(value, wanted)) return value;
    asm volatile("nanosleep.u32 20;" ::: "memory");
  }
}

}  // namespace moejit::device::ptx
