// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts the words in which two memories differ, bit for bit.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(kMeasureThreads, 4, moejit_count_differences, CountDifferencesParams) {
  const auto a = ptx::global(params.a);
  const auto b = ptx::global(params.b);
  const int64_t stride = int64_t{ptx::cta_count()} * kMeasureThreads;
  uint64_t differing = 0;
  for (int64_t i = int64_t{ptx::cta_index()} * kMeasureThreads + ptx::thread_index();
       i < params.words; i += stride) {
    differing += ptx::load(a + i) != ptx::load(b + i) ? 1 : 0;
  }
  if (differing > 0) ptx::atomic_add(ptx::global(params.differing), differing);
}

}  // namespace moejit::device
