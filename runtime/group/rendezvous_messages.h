// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/group/packet_socket.h"
#include "runtime/group/rendezvous.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// What a rank said of its plan: compiler::group_identity(), fields "name=value".
struct RankIdentity {
  int32_t rank = 0;
  std::span<const std::string> fields;
};

// Compares two identities field by field, whatever their order. Error kTensorMismatch names the
// first field that differs, the ranks, and their values.
Result<void> compare(const RankIdentity& first, const RankIdentity& second);

// What the processes of a rendezvous say to each other, as JSON of one packet.
struct RendezvousMessage {
  enum class Kind {
    kHello,    // to rank 0, with a file: who comes
    kPresent,  // from rank 0: which ranks are there
    kMembers,  // from rank 0, with the files of all ranks: all are there
    kReady,    // to rank 0: this rank can begin
    kGo,       // from rank 0: all can begin
    kError,    // either way: why there is no group
  };
  Kind kind = Kind::kHello;
  Introduction hello = {};                 // of kHello
  uint32_t present = 0;                    // of kPresent: bit r for rank r
  std::vector<Introduction> members = {};  // of kMembers: bytes and gpu of each rank
  std::optional<Error> error = {};         // of kError
};

// Returns an identity in which long values are their digests, so that it fits into a packet.
std::vector<std::string> shortened(std::vector<std::string> identity);

// Returns the message as text.
std::string encode(const RendezvousMessage& message);
// Returns none for a text that is no message of this version's protocol.
std::optional<RendezvousMessage> decode(std::string_view text);

// Sends a message; returns 0 or errno, as PacketSocket::send() does.
int send(const PacketSocket& link, const RendezvousMessage& message, std::span<const int> files,
         const Deadline& deadline);

// Returns an error of a rendezvous.
tl::unexpected<Error> refuse_rendezvous(ErrorCode code, std::string message, std::string hint = {});

// Returns a rank's error in the words in which the others are told of it.
Error told_by(int32_t rank, Error error);

// Returns the numbers of the ranks whose bits are set: "rank 1", or "ranks 1, 3".
std::string ranks_text(uint32_t bits);

}  // namespace moejit::runtime
