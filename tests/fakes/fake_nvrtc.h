// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/fakes/mapped_record.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moejit::testing {

// How the fake NVRTC behaves, and what it counted, in a file that all processes of a test map; its
// path is in the environment variable FAKE_NVRTC_CONTROL. All zero: each compile succeeds at once.
struct FakeNvrtcControl {
  static constexpr std::size_t kKernels = 256;

  // What to do.
  std::atomic<int64_t> microseconds;     // a compile takes at least
  std::atomic<int64_t> code_bytes;       // of a kernel; 0: 1024
  std::atomic<int64_t> compiles_to_go;   // this many until one crashes; 0: none does
  std::atomic<int32_t> result;           // that compiles give; 0: success
  std::atomic<int32_t> is_inconsistent;  // each compile makes other bytes

  // What happened.
  std::atomic<int64_t> begun;
  std::atomic<int64_t> finished;
  std::atomic<int64_t> cancelled;
  std::atomic<int64_t> running;
  std::atomic<int64_t> most_running;
  std::array<std::atomic<int64_t>, kKernels> begun_of;  // by the number that ends the entry's name
  std::array<std::atomic<int64_t>, 1024> order;         // numbers of kernels as they were begun

  // For the test program itself: processes that are ready, and a sign to start.
  std::atomic<int64_t> ready;
  std::atomic<int64_t> go;

  // What to do, again: kernels whose image tells the bytes of their parameters,
  // which a driver asks for. Written before compiles.
  struct Params {
    std::array<char, 120> entry;
    int64_t bytes;
  };
  std::array<Params, kKernels> params;
  std::atomic<int32_t> is_held;  // no compile ends
};

using MappedControl = MappedRecord<FakeNvrtcControl>;

}  // namespace moejit::testing
