// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/group/rendezvous.h"
#include "runtime/group/rendezvous_messages.h"
#include "runtime/group/rendezvous_socket.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::runtime {

// Rank 0's part of a rendezvous. It listens until all ranks have come. If some do not come, it
// tells the others why.
class Gathering {
 public:
  Gathering(const RendezvousPlace& place, const Introduction& own, const Deadline& deadline)
      : place_(place), own_(own), deadline_(deadline), members_{own} {}

  // Waits for all ranks, and sends each of them the files of all, with `file` as rank 0's. Returns
  // links and files by rank; rank 0's are empty. Errors: as of Rendezvous::join().
  Result<void> run(const FileDescriptor& file, std::vector<PacketSocket>& links,
                   std::vector<MetRank>& ranks);

 private:
  // A process that came, and the rank that it said it is; -1 before.
  struct Visitor {
    PacketSocket link;
    int32_t rank = -1;
    FileDescriptor file = {};
  };

  Result<void> gather();
  Result<void> accept_all();
  // Listens to what a visitor says, or that it leaves.
  Result<void> hear(Visitor& visitor);
  Result<void> welcome(Visitor& visitor, const Introduction& hello);
  // Returns the error that a rank came whose introduction does not go with the others'.
  Result<void> check(const Visitor& visitor, const Introduction& hello) const;
  Result<void> hand_out(const FileDescriptor& file);
  // Returns the error that rank 0 has a process already, as both of them see it.
  Result<void> answer_of(const PacketSocket& occupant, const FileDescriptor& file);
  uint32_t present() const;
  bool has_all() const { return present() == (1U << own_.ranks) - 1; }
  void tell_all(const RendezvousMessage& message) const;

  const RendezvousPlace& place_;
  const Introduction& own_;
  Deadline deadline_;
  ListeningSocket* listener_ = nullptr;
  std::vector<Visitor> visitors_;
  std::vector<Introduction> members_;  // that are there, in the order in which they came
  std::string turned_away_;            // the last process of another user that came
};

}  // namespace moejit::runtime
