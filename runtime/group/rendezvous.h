// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"
#include "runtime/group.h"
#include "runtime/group/packet_socket.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::runtime {

// What a rank tells the others of itself.
struct Introduction {
  int32_t rank = 0;
  int32_t ranks = 1;
  int64_t bytes = 0;                       // of the memory behind its file
  std::string gpu = {};                    // another one for each rank; empty: not compared
  std::vector<std::string> identity = {};  // fields "name=value", equal for all ranks
};

// What a process has of a rank that it met.
struct MetRank {
  int64_t bytes = 0;
  std::string gpu;
  FileDescriptor file;  // of the rank's memory; empty for the own rank
};

// The meeting of a group's processes, one for each rank. They exchange files of their memory over a
// Unix socket, compare what they are, and begin together. Knows nothing of GPUs. Rank 0 listens at
// the path and passes on what comes. The socket's file is gone when all have come, or when rank 0
// gives up. No wait outlasts the deadline, which begins with join() and holds for finish() too.
class Rendezvous {
 public:
  // Waits until all ranks have come, and hands them `file`. Errors, in the words of the rank that
  // saw them first, for all ranks that are there:
  //   kInvalidValue     a path or deadline that cannot be used, two processes of one rank or on one
  //                     GPU, another number of ranks, a path that belongs to another user
  //   kTensorMismatch   identities that differ
  //   kFileWrite        no socket can be made at the path
  //   kInterrupted      ranks that did not come before the deadline, or left
  static Result<Rendezvous> join(const RendezvousPlace& place, const Introduction& own,
                                 const FileDescriptor& file);
  Rendezvous(Rendezvous&&) noexcept = default;

  std::vector<MetRank>& ranks() { return ranks_; }

  // Tells the others how this rank fared with what it met, and waits for how they did. Returns the
  // rank's own error, or another rank's with its number; kInterrupted as join() does.
  Result<void> finish(const Result<void>& own);

 private:
  Rendezvous(RendezvousPlace place, int32_t rank, const Deadline& deadline)
      : place_(std::move(place)), rank_(rank), deadline_(deadline) {}
  Result<void> visit(const Introduction& own, const FileDescriptor& file);
  Result<void> await_ready();
  // Returns whether the rank said that it is ready.
  Result<bool> hear_ready(int32_t rank) const;
  Result<void> await_go();

  RendezvousPlace place_;
  int32_t rank_;
  Deadline deadline_;
  std::vector<MetRank> ranks_;
  std::vector<PacketSocket> links_;  // of rank 0 by rank; of others one, to rank 0
};

}  // namespace moejit::runtime
