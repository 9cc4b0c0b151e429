// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/fork.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace moejit::runtime {

// The order in which compiles begin: waiting ones before prefetches.
enum class Priority {
  kPrefetch,  // nobody waits for the kernel yet
  kWaiting,
};

// Threads that compile, at most `parallelism` at a time: first the kernels that somebody waits for,
// otherwise in the order of submission. Threads start when there is work. In the child of a fork()
// the service is empty and starts threads of its own; the work of its parent is lost there.
class CompileService final : private ForkHandler {
 public:
  // Work to do on a thread; must not throw.
  using Work = std::function<void()>;
  using Ticket = uint64_t;

  explicit CompileService(int32_t parallelism);
  // Drops work that has not begun and waits for the rest.
  ~CompileService();

  // Submits work. If the system cannot start even one thread, the work is done before this returns.
  Ticket submit(Priority priority, Work work);
  // Raises the priority, since somebody waits for the work now. Does nothing if the work has begun.
  void raise(Ticket ticket);
  // Drops work that has not begun; returns whether it did.
  bool drop(Ticket ticket);

  int32_t parallelism() const { return parallelism_; }

 private:
  struct Pool;

  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

  int32_t parallelism_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace moejit::runtime
