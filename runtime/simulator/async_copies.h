// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/fibers.h"

#include <cstdint>
#include <vector>

namespace moejit::runtime {

// An asynchronous copy to shared memory that no wait has covered yet.
struct AsyncCopy {
  uint32_t offset = 0;  // in shared memory
  uint32_t bytes = 0;
  const void* source = nullptr;  // null: zeros
  sim::Site site{};
  bool has_landed = false;  // whether the data is there, though nobody may rely on it
  int64_t group = 0;
};

// The copies under way of each thread, in the groups that the thread makes of them.
class AsyncCopies {
 public:
  void reset(int32_t threads) {
    if (threads_.size() < static_cast<std::size_t>(threads)) {
      threads_.resize(static_cast<std::size_t>(threads));
    }
    for (auto& thread : threads_) {
      thread.copies.clear();
      thread.committed = 0;
    }
  }
  void add(int32_t thread, AsyncCopy copy) {
    PerThread& own = threads_[static_cast<std::size_t>(thread)];
    copy.group = own.committed;
    own.copies.push_back(copy);
  }
  void commit(int32_t thread) { ++threads_[static_cast<std::size_t>(thread)].committed; }

  // Takes out the copies of all but the last `pending_groups` closed groups and calls `done`.
  template <typename Done>
  void complete(int32_t thread, int32_t pending_groups, Done done) {
    PerThread& own = threads_[static_cast<std::size_t>(thread)];
    std::size_t count = 0;
    while (count < own.copies.size() && own.copies[count].group < own.committed - pending_groups) {
      done(own.copies[count++]);
    }
    own.copies.erase(own.copies.begin(), own.copies.begin() + static_cast<std::ptrdiff_t>(count));
  }

 private:
  struct PerThread {
    std::vector<AsyncCopy> copies;  // groups ascend
    int64_t committed = 0;
  };
  std::vector<PerThread> threads_;
};

}  // namespace moejit::runtime
