// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/prepared_layer.h"

#include <cstddef>
#include <vector>

namespace moejit::cli {

// Marks the time before and after every kernel of the calls that it observes.
class KernelTimer final : public runtime::LaunchObserver {
 public:
  explicit KernelTimer(runtime::Device& device) : device_(device) {}
  ~KernelTimer() override;
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

  Result<void> before(size_t kernel_index) override;
  Result<void> after(size_t kernel_index) override;

  struct Sample {
    size_t kernel_index = 0;
    double microseconds = 0.0;
  };
  // All launches so far in their order; waits for them, and forgets them.
  Result<std::vector<Sample>> take_samples();

 private:
  struct Span {
    size_t kernel_index = 0;
    void* start = nullptr;
    void* end = nullptr;
  };
  void release_marks();

  runtime::Device& device_;
  std::vector<Span> spans_;
};

}  // namespace moejit::cli
