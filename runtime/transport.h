// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

// A move of a collective step, with the addresses of one rank's call: compiler::BlockMove. Memory
// is this rank's own; source and destination do not overlap.
struct BlockTransfer {
  compiler::Movement movement = compiler::Movement::kGather;
  const void* source = nullptr;  // [block] of kGather, [R, block] of kExchange
  void* destination = nullptr;   // [R, block]
  int64_t bytes = 0;             // of a block, the same on all ranks
};

// What carries bytes between the ranks of a group whose kernels do not reach each other's memory:
// this rank's end of it. All that a group asks of a network is here.
//
// One thread at a time. All ranks make the same calls in the same order.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t ranks() const = 0;

  // Sends this rank's plan (compiler::group_identity()) to the other ranks, and returns what each
  // has sent, by ranks, this one too. Long values may be digests. A transport between processes
  // waits for all, until its deadline. With ranks of one process, earlier callers do not hear of
  // later ones. Error kInterrupted: a rank did not come in time.
  virtual Result<std::vector<std::vector<std::string>>> introduce(
      const std::vector<std::string>& identity) = 0;

  // Moves the blocks in the order of the stream, the block for this rank itself too: it may be
  // recorded into a CUDA graph. Neither waits nor allocates on the host, once such blocks were
  // moved before. Errors: kDriver in the words of the network, after which a step may have been
  // done in part.
  virtual Result<void> move(std::span<const BlockTransfer> blocks, Stream stream) = 0;

  // Returns what went wrong since: a rank that was lost while a step was under way. Does not wait.
  virtual Result<void> check() { return {}; }

  // Ends steps that wait for a rank which does not come, so that the stream goes on; what they
  // would have moved means nothing. After it, move() is the error kInvalidState.
  virtual void abort() {}
};

}  // namespace moejit::runtime
