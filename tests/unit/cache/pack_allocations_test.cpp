// SPDX-License-Identifier: Apache-2.0
// In a program of its own, whose allocations are counted.
#include "tests/unit/cache/pack_test.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> allocations{0};
}

// g++ sees that free() gets what operator new gave, not that this one has it of malloc().
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace moejit::cache {
namespace {

TEST_F(PackTest, LookupsAllocateNothingOnceThePageIsKnown) {
  write(300);
  const auto pack = Pack::open(file()).value();
  const Digest present = entry(7).key, absent = entry(777).key;
  const long before_pages = allocations;
  ASSERT_TRUE(pack->contains(present).value());
  ASSERT_FALSE(pack->contains(absent).value());
  EXPECT_GT(allocations, before_pages);  // the pages
  const long before = allocations;
  const bool is_present = pack->contains(present).value();
  const bool is_absent = !pack->contains(absent).value();
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(is_present && is_absent);
}

}  // namespace
}  // namespace moejit::cache
