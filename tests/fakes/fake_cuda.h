// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/fakes/mapped_record.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moejit::testing {

// The entry points of the fake libcuda, by the names of DriverApi's members and then those that
// only tests call.
enum class CudaCall : std::size_t {
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) member,
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION
  ctx_create,
  ctx_destroy,
  ctx_set_current,
  primary_ctx_reset,
  kCount
};

// How the fake libcuda behaves, and what it saw, in a file that all processes of a test map; its
// path is in the environment variable FAKE_CUDA_CONTROL. All zero: a driver of CUDA 13.0 with one
// GPU of compute capability 9.0 and 1 GiB, and every call succeeds. Memory is the host's, copies
// copy, kernels do not run. What is wrong with a call gives the result of the real driver where
// that is documented, and is counted; counters are relaxed atomics, so that threads which launch
// are not ordered by the fake and a thread sanitizer sees what the product orders.
struct FakeCudaControl {
  static constexpr std::size_t kDevices = 8;
  static constexpr std::size_t kImages = 1U << 16U;
  using Count = std::atomic<int64_t>;

  // What to do.
  std::atomic<int32_t> devices;             // 0: one; less: none
  std::atomic<int32_t> driver_version;      // 0: 13000
  std::atomic<int32_t> compute_capability;  // 0: 90
  std::atomic<int64_t> memory_bytes;        // of each GPU, for memory and loaded images; 0: 1 GiB
  std::atomic<int32_t> prohibits_loads_in_capture;  // as drivers before 12.x did
  std::atomic<int32_t> keeps_launches_in_flight;    // until their stream or context is waited for
  std::atomic<int64_t> fail_at;    // the call that makes `calls` this number fails; 0: none does
  std::atomic<int32_t> fail_with;  // this CUresult
  std::atomic<int32_t> is_failure_sticky;  // and so do all later calls in its context
  std::atomic<int32_t> has_no_links;       // between GPUs
  std::atomic<int32_t> hides_peers;        // from those who ask for a GPU by its bus id
  std::atomic<int32_t> shares_nothing;     // with other processes
  std::atomic<int32_t> takes_time;  // of calls: fake_cuda_ticks_inside() tells this thread's sum

  // What happened.
  Count calls;
  Count failed;  // which call `fail_at` was: its CudaCall and 1
  std::array<Count, static_cast<std::size_t>(CudaCall::kCount)> calls_of;
  Count calls_after_shutdown;  // of the driver, when the process ends
  Count calls_in_callbacks;    // of user objects, where calls are not permitted
  // Contexts
  Count contexts_created, contexts_destroyed, contexts_reset;
  Count primaries_retained, primaries_released;
  Count pushed, popped;
  // Images and kernels
  Count images;                                                // that were offered
  std::array<std::array<uint8_t, 32>, kImages> image_digests;  // SHA-256 of each, in order
  Count images_refused;
  Count libraries_loaded, libraries_unloaded;
  Count unloaded_in_flight, unloaded_in_graph;  // libraries that should still have been there
  Count launched_unloaded;
  // Launches
  Count launches;  // that were accepted, of kernels and of nodes of graphs
  std::array<Count, kDevices> launches_on;
  Count launches_overlapping;  // calls that let the kernel begin before the one before it has ended
  Count launches_refused;      // for what the device cannot do
  Count launches_elsewhere;    // on a stream of another context than the current one
  Count launches_not_readied;  // in a context that did not load the kernel before
  Count launches_undersized;   // whose dynamic shared memory the kernel was not set up for
  // Captures and graphs
  Count nodes_captured;
  Count captures_invalidated;
  Count user_objects_created, user_objects_destroyed;
  // Memory
  Count allocated, freed;
  Count shared_taken, shared_released;  // allocations that processes share, own and others'
  Count ranges_reserved, ranges_freed;  // of addresses
};

using CudaControl = MappedRecord<FakeCudaControl>;

}  // namespace moejit::testing
