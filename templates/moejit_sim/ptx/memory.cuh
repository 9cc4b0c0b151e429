// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/memory.cuh: every access is checked and recorded.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

template <typename T>
struct GlobalPtr {
  T* address;
  MOEJIT_DEVICE GlobalPtr operator+(int64_t elements) const {
    // As an integer: an address that is formed but not used may lie anywhere.
    return {reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) +
                                 static_cast<uintptr_t>(elements) * sizeof(T))};
  }
  MOEJIT_DEVICE explicit operator bool() const { return address != nullptr; }
};

template <typename T>
MOEJIT_DEVICE GlobalPtr<T> global(T* address) {
  return {address};
}

template <typename T>
MOEJIT_DEVICE T* known_global(T* address) {
  return address;
}

template <typename U, typename T>
MOEJIT_DEVICE GlobalPtr<U> as(GlobalPtr<T> pointer) {
  return {reinterpret_cast<U*>(pointer.address)};
}

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

template <typename T>
MOEJIT_DEVICE SharedPtr<T> shared(uint32_t byte_offset) {
  return {sim::kSharedBase + byte_offset};
}

template <typename T>
inline constexpr bool kIsAccessSize = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 ||
                                      sizeof(T) == 8 || sizeof(T) == 16;

template <typename T>
MOEJIT_DEVICE T load_checked(const void* bytes) {
  static_assert(kIsAccessSize<T>, "an access moves 1, 2, 4, 8 or 16 bytes");
  T value;
  __builtin_memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
MOEJIT_DEVICE T load(GlobalPtr<const T> pointer, Site site = Site::here()) {
  Machine* m = machine();
  return load_checked<T>(
      m->calls->access_global(m, pointer.address, sizeof(T), Access::kRead, site));
}
template <typename T>
MOEJIT_DEVICE T load(GlobalPtr<T> pointer, Site site = Site::here()) {
  return load(GlobalPtr<const T>{pointer.address}, site);
}

template <typename T>
MOEJIT_DEVICE T load_streaming(GlobalPtr<const T> pointer, Site site = Site::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
  return load(pointer, site);
}

MOEJIT_DEVICE void prefetch_to_l2(GlobalPtr<const Bytes16> source, uint32_t bytes,
                                  Site site = Site::here()) {
  Machine* m = machine();
  m->calls->prefetch_global(m, source.address, bytes, site);
}

template <typename T>
MOEJIT_DEVICE void store(GlobalPtr<T> pointer, T value, Site site = Site::here()) {
  static_assert(kIsAccessSize<T>, "an access moves 1, 2, 4, 8 or 16 bytes");
  Machine* m = machine();
  __builtin_memcpy(m->calls->access_global(m, pointer.address, sizeof(T), Access::kWrite, site),
                   &value, sizeof(T));
}

MOEJIT_DEVICE void store_streaming(GlobalPtr<Bytes16> pointer, const Bytes16& value,
                                   Site site = Site::here()) {
  store(pointer, value, site);
}

template <typename T>
MOEJIT_DEVICE T load(SharedPtr<T> pointer, Site site = Site::here()) {
  Machine* m = machine();
  return load_checked<T>(
      m->calls->access_shared(m, pointer.address, sizeof(T), Access::kRead, site));
}

template <typename T>
MOEJIT_DEVICE void store(SharedPtr<T> pointer, T value, Site site = Site::here()) {
  static_assert(kIsAccessSize<T>, "an access moves 1, 2, 4, 8 or 16 bytes");
  Machine* m = machine();
  __builtin_memcpy(m->calls->access_shared(m, pointer.address, sizeof(T), Access::kWrite, site),
                   &value, sizeof(T));
}

MOEJIT_DEVICE void atomic_add(SharedPtr<int32_t> pointer, int32_t value, Site site = Site::here()) {
  Machine* m = machine();
  void* counter = m->calls->access_shared(m, pointer.address, 4, Access::kAtomic, site);
  const int32_t old = load_checked<int32_t>(counter);
  const uint32_t sum = static_cast<uint32_t>(old) + static_cast<uint32_t>(value);
  __builtin_memcpy(counter, &sum, 4);
}

MOEJIT_DEVICE void atomic_max(SharedPtr<uint32_t> pointer, uint32_t value,
                              Site site = Site::here()) {
  Machine* m = machine();
  void* word = m->calls->access_shared(m, pointer.address, 4, Access::kAtomic, site);
  if (load_checked<uint32_t>(word) < value) __builtin_memcpy(word, &value, 4);
}

// CTAs run on several host threads: atomic here too.
MOEJIT_DEVICE void atomic_or(GlobalPtr<uint32_t> pointer, uint32_t bits, Site site = Site::here()) {
  Machine* m = machine();
  void* word = m->calls->access_global(m, pointer.address, 4, Access::kAtomic, site);
  __atomic_fetch_or(static_cast<uint32_t*>(word), bits, __ATOMIC_RELAXED);
}

MOEJIT_DEVICE void atomic_max(GlobalPtr<uint32_t> pointer, uint32_t value,
                              Site site = Site::here()) {
  Machine* m = machine();
  auto* word =
      static_cast<uint32_t*>(m->calls->access_global(m, pointer.address, 4, Access::kAtomic, site));
  uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(word, &old, value, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
}

MOEJIT_DEVICE uint32_t fetch_add(GlobalPtr<uint32_t> pointer, uint32_t value,
                                 Site site = Site::here()) {
  Machine* m = machine();
  void* word = m->calls->access_global(m, pointer.address, 4, Access::kAtomic, site);
  return __atomic_fetch_add(static_cast<uint32_t*>(word), value, __ATOMIC_RELAXED);
}

MOEJIT_DEVICE void atomic_add(GlobalPtr<uint64_t> pointer, uint64_t value,
                              Site site = Site::here()) {
  Machine* m = machine();
  void* sum = m->calls->access_global(m, pointer.address, 8, Access::kAtomic, site);
  __atomic_fetch_add(static_cast<uint64_t*>(sum), value, __ATOMIC_RELAXED);
}

}  // namespace moejit::device::ptx
