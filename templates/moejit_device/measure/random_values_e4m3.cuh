// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random numbers with the deviation 64: the largest number of e4m3 is 7 times that.

#include "moejit_device/measure/random_run.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(kMeasureThreads, 4, moejit_random_values_e4m3, RandomValuesParams) {
  const int64_t run = run_of_thread();
  if (run >= params.runs) return;
  RandomRun numbers = random_run(params.seed, run);
  for (int32_t i = 0; i < kRandomRun; ++i) {
    numbers.value[i] = ptx::multiply(numbers.value[i], 64.0f);
  }
  Bytes8 bytes;
  for (int32_t i = 0; i < 2; ++i) {
    const uint32_t low = ptx::e4m3_pair(numbers.value[4 * i], numbers.value[4 * i + 1]);
    const uint32_t high = ptx::e4m3_pair(numbers.value[4 * i + 2], numbers.value[4 * i + 3]);
    bytes.word[i] = low | high << 16;
  }
  ptx::store(ptx::global(static_cast<Bytes8*>(params.values)) + run, bytes);
}

}  // namespace moejit::device
