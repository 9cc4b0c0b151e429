// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/fork_gate.h"

#include "compiler/support/fork.h"

#include <condition_variable>
#include <memory>
#include <mutex>

namespace moejit {
namespace {

class Gate final : private ForkHandler {
 public:
  Gate() { register_for_fork(); }

  void enter() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return !state_->is_forking; });
    ++state_->inside;
  }
  void leave() {
    const std::lock_guard lock(state_->mutex);
    if (--state_->inside == 0) state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int inside = 0;
    bool is_forking = false;
  };

  void before_fork() override {
    std::unique_lock lock(state_->mutex);
    state_->is_forking = true;
    state_->changed.wait(lock, [&] { return state_->inside == 0; });
    lock.release();  // until after the fork
  }
  void after_fork_in_parent() override {
    state_->is_forking = false;
    state_->mutex.unlock();
    state_->changed.notify_all();
  }
  void after_fork_in_child() override {
    // Threads that do not exist here seem to wait for the old condition.
    static_cast<void>(state_.release());
    state_ = std::make_unique<State>();
  }

  std::unique_ptr<State> state_ = std::make_unique<State>();
};

// Never destroyed: a thread may compile while the process ends.
Gate& gate() {
  static Gate& the_gate = *new Gate;
  return the_gate;
}

}  // namespace

ForkGate::ForkGate() { gate().enter(); }
ForkGate::~ForkGate() { gate().leave(); }

}  // namespace moejit
