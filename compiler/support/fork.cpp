// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/fork.h"

#include <pthread.h>

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

}  // namespace moejit
