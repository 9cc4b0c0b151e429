// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_sim/machine.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace moejit::runtime {

// Stacks for the 1024 fibers of one CTA, with the Machine in front (moejit_sim/machine.h). It is
// only address space: a page costs memory once a fiber has touched it.
class StackSlab {
 public:
  static constexpr int32_t kMaxThreads = 1024;

  // Returns nullptr if there is no address space.
  static std::unique_ptr<StackSlab> create();
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  sim::Machine& machine() { return *reinterpret_cast<sim::Machine*>(base_); }

  // stack_top() returns the address one past a thread's stack.
  std::byte* stack_top(int32_t thread) const;
  static constexpr std::size_t kStackBytes = 64 * 1024;

  // Sets guard pages below the stacks of threads 0 to threads - 1, as far as the system grants
  // them.
  void guard(int32_t threads);

 private:
  explicit StackSlab(std::byte* base) : base_(base) {}
  std::byte* base_;
  int32_t guarded_ = 0;
};

}  // namespace moejit::runtime
