// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/rendezvous.h"

#include "runtime/group/gathering.h"
#include "runtime/group/rendezvous_messages.h"
#include "runtime/group/rendezvous_socket.h"

#include <array>
#include <fmt/core.h>
#include <optional>

namespace moejit::runtime {
namespace {

using Kind = RendezvousMessage::Kind;

constexpr int64_t kLongestDeadline = 24LL * 3600 * 1000;
constexpr int32_t kMostRanks = PacketSocket::kMostFiles;

// What came over a link: a message with its files, or the end of the link.
struct Heard {
  std::optional<RendezvousMessage> message;
  std::vector<FileDescriptor> files;
};

Result<Heard> take(const PacketSocket& link, bool& has_taken) {
  Packet packet;
  int error = 0;
  has_taken = true;
  switch (link.receive(packet, error)) {
    case PacketSocket::Received::kNothing: has_taken = false; return Heard{};
    case PacketSocket::Received::kEnd: return Heard{};
    case PacketSocket::Received::kFailed:
      return refuse_rendezvous(
          ErrorCode::kInterrupted,
          fmt::format("cannot take what another rank sent: {}", errno_text(error)),
          "raise the number of files that a process may have open: ulimit -n");
    case PacketSocket::Received::kPacket: break;
  }
  return Heard{.message = decode(packet.text), .files = std::move(packet.files)};
}

// Waits for a message of the link. has_taken is false at the deadline.
Result<Heard> listen_to(const PacketSocket& link, const Deadline& deadline, bool& has_taken) {
  const std::array<int, 1> sockets = {link.get()};
  std::vector<bool> readable;
  for (;;) {
    Result<Heard> heard = take(link, has_taken);
    if (!heard || has_taken || deadline.has_passed()) return heard;
    wait_for_any(sockets, deadline.left(1000), readable);
  }
}

tl::unexpected<Error> left(std::string_view who, const std::string& path) {
  return refuse_rendezvous(ErrorCode::kInterrupted,
                           fmt::format("{} left {} before the group was ready", who, path),
                           "its own error, or how its process ended, says why");
}

tl::unexpected<Error> too_late(std::string_view what, const RendezvousPlace& place) {
  return refuse_rendezvous(ErrorCode::kInterrupted,
                           fmt::format("{} {} within {} ms", what, place.path, place.deadline_ms),
                           "start all ranks with the same path, and give them more time if they "
                           "need it");
}

}  // namespace

Result<Rendezvous> Rendezvous::join(const RendezvousPlace& place, const Introduction& own,
                                    const FileDescriptor& file) {
  Introduction short_own = own;
  short_own.identity = shortened(own.identity);
  MOEJIT_TRY(check_socket_path(place.path));
  if (own.ranks < 1 || own.ranks > kMostRanks || own.rank < 0 || own.rank >= own.ranks)
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format("got rank {} of {}, wanted one of 1 to {}", own.rank, own.ranks, kMostRanks));
  if (place.deadline_ms < 1 || place.deadline_ms > kLongestDeadline)
    return refuse_rendezvous(ErrorCode::kInvalidValue,
                             fmt::format("the deadline of the rendezvous is {} ms, wanted 1 to {}",
                                         place.deadline_ms, kLongestDeadline));
  const Deadline deadline(place.deadline_ms);
  Rendezvous made(place, own.rank, deadline);
  if (own.rank != 0) MOEJIT_TRY(made.visit(short_own, file));
  if (own.rank == 0)
    MOEJIT_TRY(Gathering(place, short_own, deadline).run(file, made.links_, made.ranks_));
  return made;
}

Result<void> Rendezvous::visit(const Introduction& own, const FileDescriptor& file) {
  MOEJIT_TRY_ASSIGN(PacketSocket link, connect_to(place_.path, deadline_));
  const std::array<int, 1> files = {file.get()};
  // If rank 0 is gone, or had enough before it has read this, the answer tells.
  send(link, {.kind = Kind::kHello, .hello = own}, files, deadline_);
  const uint32_t all = (1U << own.ranks) - 1;
  for (uint32_t present = 0;;) {
    bool has_taken = false;
    MOEJIT_TRY_ASSIGN(Heard heard, listen_to(link, deadline_, has_taken));
    if (!has_taken) {
      auto late =
          too_late(present == 0 || present == all ? "rank 0 did not answer at"
                                                  : ranks_text(all & ~present) + " did not come to",
                   place_);
      send(link, {.kind = Kind::kError, .error = late.value()}, {}, Deadline(0));
      return late;
    }
    if (!heard.message) return left("rank 0", place_.path);
    if (heard.message->error) return tl::make_unexpected(*heard.message->error);
    if (heard.message->kind == Kind::kPresent) present = heard.message->present;
    if (heard.message->kind != Kind::kMembers) continue;
    if (heard.files.size() != static_cast<std::size_t>(own.ranks) ||
        heard.message->members.size() != heard.files.size())
      return left("rank 0", place_.path);
    for (std::size_t rank = 0; rank < heard.files.size(); ++rank) {
      const Introduction& member = heard.message->members[rank];
      ranks_.push_back({.bytes = member.bytes,
                        .gpu = member.gpu,
                        .file = static_cast<int32_t>(rank) == own.rank
                                    ? FileDescriptor()
                                    : std::move(heard.files[rank])});
    }
    links_.push_back(std::move(link));
    return {};
  }
}

Result<void> Rendezvous::finish(const Result<void>& own) {
  if (!own) {
    for (const PacketSocket& link : links_)
      if (link)
        send(link,
             {.kind = Kind::kError, .error = rank_ == 0 ? told_by(0, own.error()) : own.error()},
             {}, Deadline(0));
    return own;
  }
  if (rank_ != 0) return await_go();
  const Result<void> ready = await_ready();
  RendezvousMessage end{.kind = ready ? Kind::kGo : Kind::kError};
  if (!ready) end.error = ready.error();
  for (const PacketSocket& link : links_)
    if (link) send(link, end, {}, Deadline(0));
  return ready;
}

Result<void> Rendezvous::await_ready() {
  std::vector<bool> is_ready(links_.size()), readable;
  is_ready[0] = true;
  for (;;) {
    std::vector<int> sockets;
    for (std::size_t rank = 1; rank < links_.size(); ++rank) {
      if (is_ready[rank]) continue;
      MOEJIT_TRY_ASSIGN(const bool has_come, hear_ready(static_cast<int32_t>(rank)));
      is_ready[rank] = has_come;
      if (!has_come) sockets.push_back(links_[rank].get());
    }
    if (sockets.empty()) return {};
    if (deadline_.has_passed()) {
      uint32_t late = 0;
      for (std::size_t rank = 0; rank < links_.size(); ++rank)
        if (!is_ready[rank]) late |= 1U << rank;
      return too_late(ranks_text(late) + " got no further at", place_);
    }
    wait_for_any(sockets, deadline_.left(1000), readable);
  }
}

Result<bool> Rendezvous::hear_ready(int32_t rank) const {
  const PacketSocket& link = links_[static_cast<std::size_t>(rank)];
  bool has_taken = false;
  MOEJIT_TRY_ASSIGN(const Heard heard, take(link, has_taken));
  if (!has_taken) return false;
  if (!heard.message)
    return left(fmt::format("rank {} (process {})", rank, link.peer_process()), place_.path);
  if (heard.message->error) return tl::make_unexpected(told_by(rank, *heard.message->error));
  return true;
}

Result<void> Rendezvous::await_go() {
  send(links_.front(), {.kind = Kind::kReady}, {}, deadline_);
  bool has_taken = false;
  MOEJIT_TRY_ASSIGN(const Heard heard, listen_to(links_.front(), deadline_, has_taken));
  if (!has_taken) return too_late("rank 0 did not say that all ranks were ready at", place_);
  if (!heard.message) return left("rank 0", place_.path);
  if (heard.message->error) return tl::make_unexpected(*heard.message->error);
  return {};
}

}  // namespace moejit::runtime
