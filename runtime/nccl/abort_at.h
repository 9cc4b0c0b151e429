// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/nccl/communicator.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace moejit::runtime {

// Aborts a communicator if the scope lasts longer than its deadline: calls that block, and waits
// for the GPU, then return.
class AbortAt {
 public:
  explicit AbortAt(Communicator& communicator)
      : thread_([this, &communicator](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          const auto wait = std::chrono::milliseconds(communicator.deadline_ms());
          if (ended_.wait_for(lock, stop, wait, [&] { return false; }) || stop.stop_requested())
            return;
          has_aborted_ = true;
          communicator.abort();
        }) {}

  bool has_aborted() const { return has_aborted_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::atomic<bool> has_aborted_ = false;
  std::jthread thread_;
};

}  // namespace moejit::runtime
