// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/fork.h"

#include <condition_variable>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sys/wait.h>

namespace moejit {
namespace {

struct Registry {
  std::mutex mutex;
  ForkHandler* first = nullptr;
};

// Never destroyed: handlers may outlive static objects.
Registry& registry() {
  static Registry& the_registry = *new Registry;
  return the_registry;
}

}  // namespace

void ForkHandler::register_for_fork() {
  Registry& all = registry();
  static const bool is_installed = [] {
    const auto before = [] {
      registry().mutex.lock();
      for (ForkHandler* one = registry().first; one != nullptr; one = one->next_)
        one->before_fork();
    };
    const auto in_parent = [] {
      for (ForkHandler* one = registry().first; one != nullptr; one = one->next_)
        one->after_fork_in_parent();
      registry().mutex.unlock();
    };
    const auto in_child = [] {
      for (ForkHandler* one = registry().first; one != nullptr; one = one->next_)
        one->after_fork_in_child();
      registry().mutex.unlock();
    };
    return ::pthread_atfork(before, in_parent, in_child) == 0;
  }();
  static_cast<void>(is_installed);  // without memory for it, forks stay unhandled
  const std::lock_guard lock(all.mutex);
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
}

void ForkHandler::unregister_for_fork() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : all.first) = next_;
}

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

std::string wait_status_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = sigabbrev_np(signal);
  return fmt::format("was ended by signal {} ({})", signal,
                     name != nullptr ? fmt::format("SIG{}", name) : "unknown");
}

}  // namespace moejit
