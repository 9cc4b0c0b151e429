// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>

namespace moejit {

// Something that must be whole in the child of a fork(), where all threads but one are gone. Before
// a fork every living handler is asked to take its locks, and afterwards, in parent and child, to
// give them back. So no lock is held by a thread that the child does not have.
//
// before_fork() may wait only for threads that wait for no other handler. A mutex that is taken
// while another handler's is held would make two threads wait for each other.
class ForkHandler {
 public:
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  virtual void after_fork_in_child() = 0;

  ForkHandler(const ForkHandler&) = delete;
  ForkHandler& operator=(const ForkHandler&) = delete;

 protected:
  ForkHandler() = default;
  ~ForkHandler() = default;

  // Called by the most derived class, at the end of its constructor and at the start of its
  // destructor.
  void register_for_fork();
  void unregister_for_fork();

 private:
  ForkHandler* next_ = nullptr;
  ForkHandler* previous_ = nullptr;
};

// A mutex that is never left locked in the child of a fork().
class ForkMutex final : private ForkHandler {
 public:
  ForkMutex() { register_for_fork(); }
  ~ForkMutex() { unregister_for_fork(); }

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void before_fork() override { mutex_.lock(); }
  void after_fork_in_parent() override { mutex_.unlock(); }
  void after_fork_in_child() override { mutex_.unlock(); }

  std::mutex mutex_;
};

// Delays a fork() of this process while it lives. NVRTC and the dynamic linker have locks of their
// own. A lock that another thread holds during a fork() would stay locked in the child forever.
// When a fork() waits, new gates wait for it: a thread has one at a time, and no mutex of a
// ForkHandler.
class ForkGate {
 public:
  ForkGate();
  ~ForkGate();
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;
};

// Returns how a process ended by its status from waitpid(): "ended with exit status 1", "was ended
// by signal 11 (SIGSEGV)".
std::string wait_status_text(int status);

}  // namespace moejit
