// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random numbers with the deviation 1.

#include "moejit_device/measure/random_run.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(kMeasureThreads, 4, moejit_random_values_bf16, RandomValuesParams) {
  const int64_t run = run_of_thread();
  if (run >= params.runs) return;
  const RandomRun numbers = random_run(params.seed, run);
  Bytes16 bytes;
  for (int32_t i = 0; i < 4; ++i) {
    bytes.word[i] = ptx::bf16_pair(numbers.value[2 * i], numbers.value[2 * i + 1]);
  }
  ptx::store(ptx::global(static_cast<Bytes16*>(params.values)) + run, bytes);
}

}  // namespace moejit::device
