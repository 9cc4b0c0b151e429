// SPDX-License-Identifier: Apache-2.0
#include "runtime/obtain/kernel_memory.h"

#include <atomic>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace moejit::runtime {
namespace {

constexpr int kKernels = 5000;  // the table grows several times

Digest key(int i) { return sha256(fmt::format("{}", i)); }

KernelMemory::Kernel kernel(int i) {
  return std::make_shared<const compiler::KernelBinary>(
      compiler::KernelBinary{.entry = fmt::format("kernel {}", i)});
}

TEST(KernelMemory, KeepsWhatIsAddedWhereItIs) {
  KernelMemory memory;
  std::vector<const KernelMemory::Kernel*> places;
  for (int i = 0; i < kKernels; ++i) {
    EXPECT_EQ(memory.find(key(i)), nullptr);
    memory.add(key(i), kernel(i));
    places.push_back(memory.find(key(i)));
  }
  for (int i = 0; i < kKernels; ++i) {
    ASSERT_EQ(memory.find(key(i)), places[static_cast<std::size_t>(i)]);
    EXPECT_EQ((*memory.find(key(i)))->entry, fmt::format("kernel {}", i));
  }
}

TEST(KernelMemory, KeepsTheFirstKernelOfAKey) {
  KernelMemory memory;
  memory.add(key(1), kernel(1));
  memory.add(key(1), kernel(2));
  EXPECT_EQ((*memory.find(key(1)))->entry, "kernel 1");
}

TEST(KernelMemory, CountsWhatIsFound) {
  KernelMemory memory;
  memory.add(key(1), kernel(1));
  EXPECT_TRUE(memory.contains(key(1)));
  EXPECT_FALSE(memory.contains(key(2)));
  EXPECT_EQ(memory.find(key(2)), nullptr);
  EXPECT_EQ(memory.hits(), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) memory.find(key(1));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.hits(), 8000);
}

// What a thread has added is found by all others, whole, while others go on to add.
TEST(KernelMemory, IsReadWhileItGrows) {
  KernelMemory memory;
  std::atomic<int> added{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&] {
      for (int last = 0; last < kKernels;) {
        last = added.load(std::memory_order_acquire);
        for (int i = last - 1; i >= 0 && i > last - 50; --i) {
          const KernelMemory::Kernel* const found = memory.find(key(i));
          if (found == nullptr || (*found)->entry != fmt::format("kernel {}", i)) ++wrong;
        }
      }
    });
  for (int i = 0; i < kKernels; ++i) {
    memory.add(key(i), kernel(i));
    added.store(i + 1, std::memory_order_release);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moejit::runtime
