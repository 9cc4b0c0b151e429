// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/fork.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace moejit::runtime {

// Which compiles begin first.
enum class Priority {
  kPrefetch,  // nobody waits for it yet
  kWaiting,
};

// Threads that do compiles, at most `parallelism` at a time: those that somebody waits for first,
// otherwise in the order in which they came. Threads start when there is work. In the child of a
// fork() the service is empty and starts threads of its own; what its parent does is lost there.
class CompileService final : private ForkHandler {
 public:
  // May not throw.
  using Work = std::function<void()>;
  using Ticket = uint64_t;

  explicit CompileService(int32_t parallelism);
  // Drops what has not begun and waits for what has.
  ~CompileService();

  // Where the system gives not even one thread, the work is done before submit() returns.
  Ticket submit(Priority priority, Work work);
  // Somebody waits for it now. Nothing happens where it has begun.
  void raise(Ticket ticket);
  // Whether the work had not begun, and never will.
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
