// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/c_api/counted_malloc.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<int64_t> left_in_new_threads = INT64_MAX;
thread_local int64_t allocations_made = 0;
thread_local int64_t allocations_left = left_in_new_threads;

bool may_allocate() {
  ++allocations_made;
  if (allocations_left-- > 0) return true;
  allocations_left = 0;
  errno = ENOMEM;
  return false;
}

}  // namespace

// glibc's own.
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __libc_realloc(void* address, std::size_t bytes);

extern "C" __attribute__((visibility("default"))) void* malloc(std::size_t bytes) noexcept {
  return may_allocate() ? __libc_malloc(bytes) : nullptr;
}
extern "C" __attribute__((visibility("default"))) void* calloc(std::size_t count,
                                                               std::size_t bytes) noexcept {
  return may_allocate() ? __libc_calloc(count, bytes) : nullptr;
}
extern "C" __attribute__((visibility("default"))) void* realloc(void* address,
                                                                std::size_t bytes) noexcept {
  return may_allocate() ? __libc_realloc(address, bytes) : nullptr;
}

namespace moejit::testing {

int64_t allocations() { return allocations_made; }
void fail_allocations_after(int64_t count) { allocations_left = count; }
void fail_no_allocations() {
  allocations_left = INT64_MAX;
  left_in_new_threads = INT64_MAX;
}
void fail_allocations_of_new_threads_after(int64_t count) { left_in_new_threads = count; }

}  // namespace moejit::testing
