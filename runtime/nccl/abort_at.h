// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/transport.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace moejit::runtime {

// Aborts a transport if the scope lasts longer than its deadline: calls that block, and waits for
// the GPU, then return.
class AbortAt {
 public:
  AbortAt(Transport& transport, int64_t deadline_ms)
      : thread_([this, &transport, deadline_ms](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          const auto wait = std::chrono::milliseconds(deadline_ms);
          if (ended_.wait_for(lock, stop, wait, [&] { return false; }) || stop.stop_requested())
            return;
          has_aborted_ = true;
          transport.abort();
        }) {}

  bool has_aborted() const { return has_aborted_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::atomic<bool> has_aborted_ = false;
  std::jthread thread_;
};

}  // namespace moejit::runtime
