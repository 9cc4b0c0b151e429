// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/transport.h"

#include <memory>
#include <vector>

namespace moejit::runtime {

struct SimulatorGroupOptions {
  uint64_t seed = 0;             // decides every order: of ranks, CTAs, threads, stores, copies
  int64_t heap_bytes = 1 << 20;  // of each rank's symmetric memory
  int32_t sm_count = 4;          // of each rank
  compiler::Target target = compiler::simulator_target();
};

// Simulated GPUs of one process, the ranks of a group, and memory that all of them may access. Each
// rank has a heap, at one offset from each other. Launches are enqueued on streams (null is one
// more stream) and run when the host waits for something. The launches of all ranks are then under
// way at the same time. Waiting for one rank runs the others too, as far as they have to.
//
// A launch may touch memory of the group where a region of it lies in a heap, its own or a peer's.
// A rule that a kernel breaks, or a dead-lock, ends the run of the whole group. Every call that
// waits returns the error (kSimulatorFault) from then on.
//
// Calls may come from several host threads, but a thread that waits runs what has been enqueued
// until then. So enqueue the launches of all ranks that wait for each other before.
class SimulatorGroup {
 public:
  virtual ~SimulatorGroup() = default;

  virtual int32_t ranks() const = 0;
  // Returns a rank's GPU. Lives as long as the group. Memory that it allocates is its own alone.
  virtual Device& device(int32_t rank) = 0;

  // Returns the heap of a rank, page-aligned and not written at first. The host may access it, and
  // writes it with fill() and copy_to_device() of the rank's Device.
  virtual std::byte* heap(int32_t rank) = 0;
  virtual int64_t heap_bytes() const = 0;

  // Ends an epoch of bytes of a rank's heap, in the order of its stream. A kernel that reads one of
  // them is reported unless somebody has written it again. Enqueue it behind the last kernel that
  // reads the bytes, and before the one whose flags let peers write the next epoch.
  virtual Result<void> expire(int32_t rank, const void* address, int64_t bytes, Stream stream) = 0;

  // Returns the ends of a new transport between the ranks, by ranks. It copies between their
  // memories, each step where the streams of all ranks have come to it. All bytes of a block arrive
  // and count as written, as on a network. The group must outlive it.
  virtual std::vector<std::unique_ptr<Transport>> open_transport() = 0;

  // Runs until all launches of all ranks are over, but for ranks that were killed.
  virtual Result<void> synchronize() = 0;

  // Lets a rank die after its CTAs have run that many parts more: it executes nothing any more, as
  // a process that was killed. Its memory stays.
  virtual void kill(int32_t rank, int64_t parts = 0) = 0;

  // Returns the time of the group in nanoseconds. It advances only when no CTA can go on, to the
  // earliest deadline of one that waits.
  virtual uint64_t nanoseconds() const = 0;
};

// Opens a group of 1 to 8 ranks. Errors: kInvalidValue, kOutOfMemory.
Result<std::unique_ptr<SimulatorGroup>> open_simulator_group(
    int32_t ranks, const SimulatorGroupOptions& options = {});

}  // namespace moejit::runtime
