// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>

namespace moejit::runtime {

// Allocates memory for large tables with random access: in huge pages if the system has some. With
// many small pages, finding the page costs as much as reading the line in it.
template <typename T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <typename Other>
  HugePageAllocator(const HugePageAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    void* const memory = ::operator new(bytes, alignment_of(bytes));
    if (bytes >= kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // only advice, so it may fail
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
    ::operator delete(memory, alignment_of(count * sizeof(T)));
  }
  bool operator==(const HugePageAllocator&) const = default;

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  static std::align_val_t alignment_of(std::size_t bytes) {
    return std::align_val_t{bytes >= kHugePage ? kHugePage : alignof(T)};
  }
};

}  // namespace moejit::runtime
