// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers that are close to normal, each made of the seed and its index alone: the sum of eight
// numbers from 0 to 65535, which has the mean 262140 and the variance (2^32 - 1) 2 / 3, brought to
// mean 0 and deviation 1. A thread makes kRandomRun of them.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

struct RandomRun {
  float value[kRandomRun];
};

// The output function of SplitMix64.
MOEJIT_DEVICE uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

// Adds up four numbers from 0 to 65535.
MOEJIT_DEVICE int32_t sum_of_four(uint64_t bits) {
  int32_t sum = 0;
  for (int32_t i = 0; i < 4; ++i) sum += static_cast<int32_t>(bits >> (16 * i) & 0xffff);
  return sum;
}

MOEJIT_DEVICE float normal(uint64_t seed, uint64_t index) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  constexpr int32_t kMean = 262140;
  constexpr float kInverseDeviation = 0x1.3988e2p-16f;
  const uint64_t state = mixed(seed) + 2 * index * kStep;
  const int32_t sum = sum_of_four(mixed(state)) + sum_of_four(mixed(state + kStep));
  return ptx::multiply(static_cast<float>(sum - kMean), kInverseDeviation);
}

// Returns which run this thread makes; it may be past the last one.
MOEJIT_DEVICE int64_t run_of_thread() {
  return int64_t{ptx::cta_index()} * kMeasureThreads + ptx::thread_index();
}

MOEJIT_DEVICE RandomRun random_run(uint64_t seed, int64_t run) {
  const uint64_t first = kRandomRun * static_cast<uint64_t>(run);
  RandomRun numbers;
  for (uint32_t i = 0; i < kRandomRun; ++i) numbers.value[i] = normal(seed, first + i);
  return numbers;
}

}  // namespace moejit::device
