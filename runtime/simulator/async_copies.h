// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/clock.h"
#include "runtime/simulator/fibers.h"
#include "runtime/simulator/tensor_map.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace moejit::runtime {

// An asynchronous copy to shared memory that no wait has covered yet.
struct AsyncCopy {
  uint32_t offset = 0;  // in shared memory
  uint32_t bytes = 0;
  const void* source = nullptr;  // null: zeros
  sim::Site site{};
  bool is_operand = false;  // may have bytes that nothing has written
  bool has_landed = false;  // whether the data is there, though nobody may rely on it
  int64_t group = 0;
};

// An arrival at an mbarrier that comes when these copies are complete.
struct AsyncArrival {
  int32_t barrier = 0;  // index
  uint32_t phase = 0;   // which waits for it
  std::vector<AsyncCopy> copies;
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
    arrivals.clear();
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

  // Takes out all copies of a thread.
  std::vector<AsyncCopy> take(int32_t thread) {
    return std::exchange(threads_[static_cast<std::size_t>(thread)].copies, {});
  }

  std::vector<AsyncArrival> arrivals;  // that have not come, in no order

 private:
  struct PerThread {
    std::vector<AsyncCopy> copies;  // groups ascend
    int64_t committed = 0;
  };
  std::vector<PerThread> threads_;
};

// A copy of a box between global and shared memory.
struct TensorCopy {
  bool is_load = true;
  sim::TensorStoreKind store_kind = sim::TensorStoreKind::kWrite;  // kind of a store
  SimTensorMap map;
  std::array<int32_t, 4> at{0, 0, 0, 0};  // of the box's first element
  uint32_t offset = 0;                    // of the box in shared memory
  int32_t barrier = 0;                    // index of the mbarrier of a load
  uint32_t number = 0;                    // of a store, counted per thread
  bool is_bulk = false;                   // whether a store writes only once it is waited for
  int64_t group = 0;                      // of a bulk store, counted per thread
  int32_t thread = 0;
  sim::Site site{};

  // Returns where chunk `chunk` of a row of the box lies in shared memory.
  uint32_t chunk_offset(int32_t row, uint32_t chunk) const {
    const uint32_t linear =
        offset + static_cast<uint32_t>(row) * static_cast<uint32_t>(map.row_bytes()) + 16 * chunk;
    return map.is_swizzled != 0 ? swizzled(linear) : linear;
  }
  // Applies the 128-byte swizzle, a function of the shared address (PTX ISA, "Swizzling modes").
  // Bits 4 to 6 of the address number its 16-byte chunk, bits 7 to 9 the row. Offsets in shared
  // memory may stand for addresses, because shared memory begins at a multiple of 1024.
  static uint32_t swizzled(uint32_t offset) { return offset ^ (offset >> 7 & 7u) << 4; }
};
static_assert(sim::kSharedBase % 1024 == 0);

// Some rows of a copy, which the hardware moves at once.
struct CopyPiece {
  TensorCopy copy;
  int32_t first_row = 0;
  int32_t end_row = 0;
};

// The tensor stores of one thread, in the groups that it makes of them.
struct TensorStores {
  struct Store {
    uint32_t number = 0;
    int64_t group = 0;
    sim::Site site{};
  };
  int32_t thread = 0;
  int32_t agent = 0;  // its epochs are the stores' numbers
  uint32_t started = 0;
  int64_t committed = 0;          // number of groups
  std::vector<Store> not_waited;  // ascending
};

// 16 bytes that a bulk store has read and not yet written.
struct BulkRow {
  uintptr_t address = 0;
  int32_t thread = 0;
  int64_t group = 0;
  sim::Site site{};
  std::array<std::byte, 16> bytes{};
};

// The copies of a CTA that are under way.
struct TensorCopies {
  std::vector<CopyPiece> pieces;     // in no order
  std::vector<TensorStores> stores;  // of the threads that made stores
  std::vector<BulkRow> bulk_rows;    // in no order

  void reset() {
    pieces.clear();
    stores.clear();
    bulk_rows.clear();
  }
  TensorStores* find(int32_t thread) {
    for (TensorStores& own : stores) {
      if (own.thread == thread) return &own;
    }
    return nullptr;
  }
};

}  // namespace moejit::runtime
