// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace moejit::reference {

// Calls body(i) for every i in [0, count) from a few threads, each taking one contiguous range.
// The calls must not touch each other's results: then the outcome does not depend on the threads.
template <typename Body>
void parallel_for(std::int64_t count, const Body& body) {
  const std::int64_t hardware = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t workers =
      std::clamp<std::int64_t>(count, 1, std::min<std::int64_t>(hardware, 16));
  const auto run_range = [&](std::int64_t worker) {
    const std::int64_t end = count * (worker + 1) / workers;
    for (std::int64_t i = count * worker / workers; i < end; ++i) body(i);
  };
  std::vector<std::jthread> threads;  // joined even if no more can be started
  std::int64_t started = 1;
  try {
    for (; started < workers; ++started) threads.emplace_back(run_range, started);
  } catch (const std::system_error&) {
    // The system starts no more threads, so this one does their work.
  }
  run_range(0);
  for (; started < workers; ++started) run_range(started);
}

}  // namespace moejit::reference
