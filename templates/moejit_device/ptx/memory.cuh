// SPDX-License-Identifier: Apache-2.0
#pragma once

// Global and shared memory. Kernels hold typed pointers without a dereference operator and go
// through load() and store(), so that the simulator sees every access; here they cost nothing.
// An access moves sizeof(T) bytes at an address that is a multiple of it: 1, 2, 4, 8 or 16.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

template <typename T>
struct GlobalPtr {
  T* address;
  MOEJIT_DEVICE GlobalPtr operator+(int64_t elements) const { return {address + elements}; }
  MOEJIT_DEVICE explicit operator bool() const { return address != nullptr; }
};

template <typename T>
MOEJIT_DEVICE GlobalPtr<T> global(T* address) {
  return {address};
}

// Returns an address of global memory that was itself loaded from memory, and tells the compiler
// that it is global, since it could be any.
template <typename T>
MOEJIT_DEVICE T* known_global(T* address) {
  __builtin_assume(__isGlobal(address));
  return address;
}

// Returns the same address as elements of another type.
template <typename U, typename T>
MOEJIT_DEVICE GlobalPtr<U> as(GlobalPtr<T> pointer) {
  return {reinterpret_cast<U*>(pointer.address)};
}

// A byte address in the CTA's dynamic shared memory.
template <typename T>
struct SharedPtr {
  uint32_t address;
  MOEJIT_DEVICE SharedPtr operator+(int32_t elements) const {
    return {address + static_cast<uint32_t>(elements) * static_cast<uint32_t>(sizeof(T))};
  }
};

template <typename U, typename T>
MOEJIT_DEVICE SharedPtr<U> as(SharedPtr<T> pointer) {
  return {pointer.address};
}

extern __shared__ Bytes16 moejit_dynamic_shared_memory[];

// Dynamic shared memory from `byte_offset` on (multiple of sizeof(T)); 1024-byte aligned at 0.
template <typename T>
MOEJIT_DEVICE SharedPtr<T> shared(uint32_t byte_offset) {
  return {static_cast<uint32_t>(__cvta_generic_to_shared(moejit_dynamic_shared_memory)) +
          byte_offset};
}

template <typename T>
MOEJIT_DEVICE T load(GlobalPtr<const T> pointer) {
  return *pointer.address;
}
template <typename T>
MOEJIT_DEVICE T load(GlobalPtr<T> pointer) {
  return *pointer.address;
}

// Data that is read once by this kernel and written by none of its threads: the non-coherent path,
// not kept in L1.
template <typename T>
MOEJIT_DEVICE T load_streaming(GlobalPtr<const T> pointer) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
  T value;
  auto* word = reinterpret_cast<uint32_t*>(&value);
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];"
                 : "=r"(word[0])
                 : "l"(pointer.address));
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(pointer.address));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(pointer.address));
  }
  return value;
}

template <typename T>
MOEJIT_DEVICE void store(GlobalPtr<T> pointer, T value) {
  *pointer.address = value;
}

// Asks L2 for `bytes` from `source` on, a multiple of 16, and waits for nothing.
MOEJIT_DEVICE void prefetch_to_l2(GlobalPtr<const Bytes16> source, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source.address), "r"(bytes)
               : "memory");
}

// 16 bytes that this kernel does not touch again: not kept in L1. Copies of more than L2 holds are
// 5 % faster so.
MOEJIT_DEVICE void store_streaming(GlobalPtr<Bytes16> pointer, const Bytes16& value) {
  const uint32_t(&word)[4] = value.word;
  asm volatile("st.global.L1::no_allocate.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer.address),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}

template <typename T>
MOEJIT_DEVICE T load(SharedPtr<T> pointer) {
  return *static_cast<T*>(__cvta_shared_to_generic(pointer.address));
}

template <typename T>
MOEJIT_DEVICE void store(SharedPtr<T> pointer, T value) {
  *static_cast<T*>(__cvta_shared_to_generic(pointer.address)) = value;
}

// Adds to a shared counter. The order among threads is not fixed, the sum is.
MOEJIT_DEVICE void atomic_add(SharedPtr<int32_t> pointer, int32_t value) {
  atomicAdd(static_cast<int32_t*>(__cvta_shared_to_generic(pointer.address)), value);
}

// Raises a shared word to at least `value`.
MOEJIT_DEVICE void atomic_max(SharedPtr<uint32_t> pointer, uint32_t value) {
  atomicMax(static_cast<uint32_t*>(__cvta_shared_to_generic(pointer.address)), value);
}

MOEJIT_DEVICE void atomic_or(GlobalPtr<uint32_t> pointer, uint32_t bits) {
  asm volatile("red.global.or.b32 [%0], %1;" ::"l"(pointer.address), "r"(bits) : "memory");
}

// Raises a word to at least `value`.
MOEJIT_DEVICE void atomic_max(GlobalPtr<uint32_t> pointer, uint32_t value) {
  asm volatile("red.global.max.u32 [%0], %1;" ::"l"(pointer.address), "r"(value) : "memory");
}

// Adds `value` to a word and returns what it was. Orders nothing else.
MOEJIT_DEVICE uint32_t fetch_add(GlobalPtr<uint32_t> pointer, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(pointer.address), "r"(value)
               : "memory");
  return old;
}

MOEJIT_DEVICE void atomic_add(GlobalPtr<uint64_t> pointer, uint64_t value) {
  asm volatile("red.global.add.u64 [%0], %1;" ::"l"(pointer.address), "l"(value) : "memory");
}

}  // namespace moejit::device::ptx
