// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "moejit_device/core/tensor_map.cuh"

#include <atomic>
#include <cstdint>
#include <vector>

namespace moejit::runtime {

// Says whether a thread uses what goes with it.
using TakenFlag = std::atomic<bool>;

// A try-lock: one thread owns the cached value, the others work without it instead of waiting.
class Turn {
 public:
  explicit Turn(TakenFlag& flag)
      : flag_(flag), is_owner_(!flag.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (is_owner_) flag_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Returns whether it is this thread's.
  bool is_owner() const { return is_owner_; }

 private:
  TakenFlag& flag_;
  bool is_owner_;
};

// The layout of a plan's last call, which the next one takes if it has as many tokens.
class KeptLayout {
 public:
  // Calls `use` with the layout of a call over T tokens, and returns what it returns.
  template <typename Use>
  auto with(const compiler::MemoryLayout& layout, int64_t tokens, const Use& use) {
    const Turn turn(is_taken_);
    if (!turn.is_owner()) return use(layout.at(tokens));
    if (tokens_ != tokens) {
      kept_ = layout.at(tokens);
      tokens_ = tokens;
    }
    return use(kept_);
  }

 private:
  TakenFlag is_taken_ = false;
  int64_t tokens_ = -1;  // of kept_
  compiler::CallLayout kept_;
};

// A tensor map with what it was made of besides the plan. It says where elements are, and nothing
// about the memory there, so it stays right for whatever tensor has the address.
struct KeptMap {
  const void* address = nullptr;  // null: nothing is kept
  int64_t size = 0;               // of the dimension that changes from call to call; 0 without it
  device::TensorMap map{};
};

// The tensor maps of a kernel's last launch: the next one mostly has the same, and need not ask the
// driver for them.
struct KeptMaps {
  TakenFlag is_taken = false;
  std::vector<KeptMap> maps;  // in the order of the kernel's
};

}  // namespace moejit::runtime
