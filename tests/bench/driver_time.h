// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace moejit::testing {

// The time that calls spend in the driver, as a library tells that stands before it or in its place
// and is named by MOEJIT_CUDA_DRIVER: libmoejit_timed_cuda.so counts for all threads, the fake
// libcuda for the calling one.
class DriverTime {
 public:
  // Returns none if MOEJIT_CUDA_DRIVER names no such library.
  static std::optional<DriverTime> find();

  struct Sum {
    double nanoseconds = 0.0;
    int64_t calls = 0;  // of all threads
  };
  // Returns the sum until now.
  Sum read() const;
  // Returns what taking the time of a call costs outside of the time that it counts.
  double overhead_ns() const { return overhead_ns_; }

 private:
  DriverTime() = default;
  void find_overhead(void* library);

  uint64_t (*ticks_inside_)() = nullptr;
  int64_t (*nanoseconds_)() = nullptr;
  int64_t (*calls_)() = nullptr;
  double ns_per_tick_ = 0.0;
  double overhead_ns_ = 0.0;
};

}  // namespace moejit::testing
