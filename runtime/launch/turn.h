// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

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

}  // namespace moejit::runtime
