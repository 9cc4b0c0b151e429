// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <random>
#include <vector>

namespace moejit::testing {

// Kernel `number` of the tests with the fake NVRTC, which compiles anything.
inline compiler::KernelSource flight_kernel(int number) {
  return {.entry = fmt::format("moejit_flight_{}", number),
          .text = fmt::format("kernel {}\n", number),
          .target = {}};
}

// The numbers from 0 to `count` - 1, in an order of the seed's.
inline std::vector<int> shuffled(int count, unsigned seed) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(seed));
  return numbers;
}

}  // namespace moejit::testing
