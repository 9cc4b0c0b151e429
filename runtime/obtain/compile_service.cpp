// SPDX-License-Identifier: Apache-2.0
#include "runtime/obtain/compile_service.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace moejit::runtime {

struct CompileService::Pool {
  struct Job {
    Ticket ticket;
    Work work;
  };

  explicit Pool(int32_t parallelism) : most_threads(static_cast<std::size_t>(parallelism)) {}

  // These three functions need the mutex held.
  std::optional<Job> take(Ticket ticket);
  std::optional<Job> take_next();
  bool has_thread_for_more();

  void run();

  const std::size_t most_threads;
  std::mutex mutex;
  std::condition_variable has_work;
  std::array<std::deque<Job>, 2> queues;  // by priority
  std::vector<std::thread> threads;
  std::size_t idle = 0;
  Ticket last_ticket = 0;
  bool is_closing = false;
};

std::optional<CompileService::Pool::Job> CompileService::Pool::take(Ticket ticket) {
  for (auto& queue : queues) {
    const auto found = std::ranges::find(queue, ticket, &Job::ticket);
    if (found == queue.end()) continue;
    Job job = std::move(*found);
    queue.erase(found);
    return job;
  }
  return std::nullopt;
}

std::optional<CompileService::Pool::Job> CompileService::Pool::take_next() {
  for (const Priority priority : {Priority::kWaiting, Priority::kPrefetch}) {
    auto& queue = queues[static_cast<std::size_t>(priority)];
    if (queue.empty()) continue;
    Job job = std::move(queue.front());
    queue.pop_front();
    return job;
  }
  return std::nullopt;
}

void CompileService::Pool::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    std::optional<Job> job = take_next();
    if (job) {
      lock.unlock();
      job->work();
      job.reset();
      lock.lock();
      continue;
    }
    if (is_closing) return;
    ++idle;
    has_work.wait(lock);
    --idle;
  }
}

// Returns whether some thread will take the work in the queues.
bool CompileService::Pool::has_thread_for_more() {
  if (queues[0].size() + queues[1].size() > idle && threads.size() < most_threads) {
    try {
      threads.emplace_back([this] { run(); });
    } catch (const std::exception&) {
      // The system has no more threads, so the existing ones do the work.
    }
  }
  return !threads.empty();
}

CompileService::CompileService(int32_t parallelism)
    : parallelism_(std::max(1, parallelism)), pool_(std::make_unique<Pool>(parallelism_)) {
  register_for_fork();
}

CompileService::~CompileService() {
  unregister_for_fork();
  {
    const std::lock_guard lock(pool_->mutex);
    pool_->is_closing = true;
    for (auto& queue : pool_->queues) queue.clear();
  }
  pool_->has_work.notify_all();
  for (std::thread& thread : pool_->threads) thread.join();
}

CompileService::Ticket CompileService::submit(Priority priority, Work work) {
  Pool& pool = *pool_;
  std::unique_lock lock(pool.mutex);
  const Ticket ticket = ++pool.last_ticket;
  pool.queues[static_cast<std::size_t>(priority)].push_back({ticket, std::move(work)});
  if (pool.has_thread_for_more()) {
    pool.has_work.notify_one();
    return ticket;
  }
  const std::optional<Pool::Job> job = pool.take(ticket);
  lock.unlock();
  job->work();
  return ticket;
}

void CompileService::raise(Ticket ticket) {
  const std::lock_guard lock(pool_->mutex);
  auto job = pool_->take(ticket);
  if (job) pool_->queues[static_cast<std::size_t>(Priority::kWaiting)].push_back(std::move(*job));
}

bool CompileService::drop(Ticket ticket) {
  std::optional<Pool::Job> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(pool_->mutex);
  dropped = pool_->take(ticket);
  return dropped.has_value();
}

void CompileService::before_fork() { pool_->mutex.lock(); }
void CompileService::after_fork_in_parent() { pool_->mutex.unlock(); }

void CompileService::after_fork_in_child() {
  // The old pool has threads that cannot be joined and a condition that they wait for forever: it
  // can be neither used nor destroyed.
  static_cast<void>(pool_.release());
  pool_ = std::make_unique<Pool>(parallelism_);
}

}  // namespace moejit::runtime
