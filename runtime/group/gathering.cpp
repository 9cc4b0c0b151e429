// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/gathering.h"

#include "runtime/group/rendezvous_messages.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/core.h>
#include <unistd.h>

namespace moejit::runtime {
namespace {

using Kind = RendezvousMessage::Kind;

// How often rank 0 looks whether the path is still its own.
constexpr int64_t kRoundMs = 50;

tl::unexpected<Error> no_more_files(const std::string& path, int error) {
  return refuse_rendezvous(
      ErrorCode::kInterrupted,
      fmt::format("cannot listen to those who come to {}: {}", path, errno_text(error)),
      "raise the number of files that a process may have open: ulimit -n");
}

}  // namespace

uint32_t Gathering::present() const {
  uint32_t bits = 1;
  for (const Visitor& visitor : visitors_)
    if (visitor.rank >= 0) bits |= 1U << visitor.rank;
  return bits;
}

void Gathering::tell_all(const RendezvousMessage& message) const {
  for (const Visitor& visitor : visitors_)
    if (visitor.link) send(visitor.link, message, {}, Deadline(0));
}

Result<void> Gathering::run(const FileDescriptor& file, std::vector<PacketSocket>& links,
                            std::vector<MetRank>& ranks) {
  PacketSocket occupant;
  MOEJIT_TRY_ASSIGN(ListeningSocket listener, ListeningSocket::open(place_.path, occupant));
  if (occupant) return answer_of(occupant, file);
  listener_ = &listener;
  Result<void> gathered = gather();
  listener.close();
  if (gathered) gathered = hand_out(file);
  if (!gathered) {
    tell_all({.kind = Kind::kError, .error = gathered.error()});
    return gathered;
  }
  links.resize(static_cast<std::size_t>(own_.ranks));
  ranks.resize(links.size());
  for (const Introduction& member : members_)
    ranks[static_cast<std::size_t>(member.rank)] = {.bytes = member.bytes, .gpu = member.gpu};
  for (Visitor& visitor : visitors_) {
    if (visitor.rank < 0) continue;
    links[static_cast<std::size_t>(visitor.rank)] = std::move(visitor.link);
    ranks[static_cast<std::size_t>(visitor.rank)].file = std::move(visitor.file);
  }
  return {};
}

Result<void> Gathering::gather() {
  std::vector<bool> readable;
  while (!has_all()) {
    if (deadline_.has_passed())
      return refuse_rendezvous(
          ErrorCode::kInterrupted,
          fmt::format("{} did not come to {} within {} ms, wanted all {} ranks{}",
                      ranks_text(((1U << own_.ranks) - 1) & ~present()), place_.path,
                      deadline_.ms(), own_.ranks, turned_away_),
          "start all ranks with the same path, and give them more time if they need it");
    if (!listener_->has_path())
      return refuse_rendezvous(
          ErrorCode::kInterrupted,
          fmt::format("somebody removed or replaced the socket {} while rank 0 listened",
                      place_.path),
          "start rank 0 once, and name a path that nobody cleans up");
    std::vector<int> sockets = {listener_->get()};
    for (const Visitor& visitor : visitors_) sockets.push_back(visitor.link.get());
    wait_for_any(sockets, deadline_.left(kRoundMs), readable);
    for (std::size_t i = 1; i < sockets.size(); ++i)
      if (readable[i]) MOEJIT_TRY(hear(visitors_[i - 1]));
    std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.link; });
    if (readable[0]) MOEJIT_TRY(accept_all());
  }
  return {};
}

Result<void> Gathering::accept_all() {
  for (;;) {
    PacketSocket link = listener_->accept();
    if (!link) {
      if (errno == EMFILE || errno == ENFILE) return no_more_files(place_.path, errno);
      return {};
    }
    if (link.peer_user() == static_cast<int64_t>(::geteuid())) {
      visitors_.push_back({.link = std::move(link)});
      continue;
    }
    turned_away_ = fmt::format("; process {} of user {} came and was turned away",
                               link.peer_process(), link.peer_user());
  }
}

Result<void> Gathering::hear(Visitor& visitor) {
  Packet packet;
  int error = 0;
  switch (visitor.link.receive(packet, error)) {
    case PacketSocket::Received::kNothing: return {};
    case PacketSocket::Received::kFailed: return no_more_files(place_.path, error);
    case PacketSocket::Received::kEnd: {
      const pid_t process = visitor.link.peer_process();
      visitor.link = PacketSocket();
      if (visitor.rank < 0) return {};  // it only looked
      return refuse_rendezvous(ErrorCode::kInterrupted,
                               fmt::format("rank {} (process {}) left {} before all ranks had come",
                                           visitor.rank, process, place_.path),
                               "its own error, or how its process ended, says why");
    }
    case PacketSocket::Received::kPacket: break;
  }
  std::optional<RendezvousMessage> message = decode(packet.text);
  if (message && message->error && visitor.rank >= 0)  // its deadline was earlier
    return tl::make_unexpected(told_by(visitor.rank, *message->error));
  if (!message || message->kind != Kind::kHello || packet.files.size() != 1 || visitor.rank >= 0)
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format("process {} came to {} and speaks another language than a rank of this "
                    "version of moejit",
                    visitor.link.peer_process(), place_.path),
        "give all ranks the same version of moejit");
  visitor.file = std::move(packet.files.front());
  return welcome(visitor, message->hello);
}

Result<void> Gathering::check(const Visitor& visitor, const Introduction& hello) const {
  if (hello.ranks != own_.ranks)
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format("rank {} came to {} for a group of {} ranks, wanted one of {} as rank 0 has it",
                    hello.rank, place_.path, hello.ranks, own_.ranks),
        "give all ranks the same description, and each group a path of its own");
  if (hello.rank < 0 || hello.rank >= own_.ranks)
    return refuse_rendezvous(ErrorCode::kInvalidValue,
                             fmt::format("a process came to {} as rank {}, wanted 0 to {}",
                                         place_.path, hello.rank, own_.ranks - 1));
  pid_t first = hello.rank == 0 ? ::getpid() : 0;
  for (const Visitor& other : visitors_)
    if (other.rank == hello.rank) first = other.link.peer_process();
  if (first != 0)
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format("processes {} and {} both came to {} as rank {}, wanted one process a rank",
                    first, visitor.link.peer_process(), place_.path, hello.rank),
        "give each process a rank of its own, and each group a path of its own");
  for (const Introduction& other : members_)
    if (!hello.gpu.empty() && other.gpu == hello.gpu)
      return refuse_rendezvous(
          ErrorCode::kInvalidValue,
          fmt::format("ranks {} and {} are both on the GPU {}, wanted one for each",
                      std::min(other.rank, hello.rank), std::max(other.rank, hello.rank),
                      hello.gpu),
          "open another device in each process, or set CUDA_VISIBLE_DEVICES for each");
  return compare({.rank = 0, .fields = members_.front().identity},
                 {.rank = hello.rank, .fields = hello.identity});
}

Result<void> Gathering::welcome(Visitor& visitor, const Introduction& hello) {
  MOEJIT_TRY(check(visitor, hello));
  visitor.rank = hello.rank;
  members_.push_back(hello);
  tell_all({.kind = Kind::kPresent, .present = present()});
  return {};
}

Result<void> Gathering::hand_out(const FileDescriptor& file) {
  std::vector<int> files(static_cast<std::size_t>(own_.ranks), file.get());
  for (const Visitor& visitor : visitors_)
    if (visitor.rank >= 0) files[static_cast<std::size_t>(visitor.rank)] = visitor.file.get();
  RendezvousMessage all{.kind = Kind::kMembers};
  all.members.resize(files.size());
  for (const Introduction& member : members_)
    all.members[static_cast<std::size_t>(member.rank)] = {
        .rank = member.rank, .ranks = own_.ranks, .bytes = member.bytes, .gpu = member.gpu};
  for (const Visitor& visitor : visitors_) {
    if (visitor.rank < 0) continue;
    if (const int error = send(visitor.link, all, files, deadline_); error != 0)
      return refuse_rendezvous(
          ErrorCode::kInterrupted,
          fmt::format("rank {} (process {}) left {} when all ranks had come: {}", visitor.rank,
                      visitor.link.peer_process(), place_.path, errno_text(error)));
  }
  return {};
}

Result<void> Gathering::answer_of(const PacketSocket& occupant, const FileDescriptor& file) {
  const pid_t process = occupant.peer_process();
  // Whoever listens has to tell its own ranks that there are two.
  const std::array<int, 1> files = {file.get()};
  send(occupant, {.kind = Kind::kHello, .hello = own_}, files, deadline_);
  const std::array<int, 1> sockets = {occupant.get()};
  std::vector<bool> readable;
  wait_for_any(sockets, deadline_.left(1000), readable);
  Packet packet;
  int error = 0;
  if (occupant.receive(packet, error) == PacketSocket::Received::kPacket)
    if (const auto message = decode(packet.text); message && message->error)
      return tl::make_unexpected(*message->error);
  return refuse_rendezvous(
      ErrorCode::kInvalidValue,
      fmt::format("process {} listens at {} already, wanted to listen there as rank 0", process,
                  place_.path),
      "start rank 0 once, and give each group a path of its own");
}

}  // namespace moejit::runtime
