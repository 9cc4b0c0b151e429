// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/execution/forward_session.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::cli {

// Medians in microseconds, by index into Plan::kernels.
struct KernelTimes {
  std::vector<double> cool;  // single launches, each after the caches were emptied
  std::vector<double> hot;   // launches back to back, nothing between them but the marks of time
  double layer_hot = 0.0;    // one forward pass of many back to back, without marks in between
};

// Runs weights and forward `repeat` times each way after a warm-up.
Result<KernelTimes> measure_kernels(ForwardSession& session, runtime::Engine& engine,
                                    runtime::Device& device, int32_t repeat);

// Bytes read plus bytes written per second by the device's own copy of a buffer far larger than
// any cache; the median of `repeat` copies.
Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat);

}  // namespace moejit::cli
