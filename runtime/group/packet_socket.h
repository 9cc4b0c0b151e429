// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/file.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace moejit::runtime {

// The moment until which somebody waits.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(int64_t ms) : ms_(ms), end_(Clock::now() + std::chrono::milliseconds(ms)) {}

  int64_t ms() const { return ms_; }  // from the beginning
  bool has_passed() const { return Clock::now() >= end_; }
  // Returns the milliseconds that are left, rounded up, but at most `most`.
  int left(int64_t most) const;

 private:
  int64_t ms_;
  Clock::time_point end_;
};

// One message between processes, with open files that arrive as files of the receiver.
struct Packet {
  std::string text;
  std::vector<FileDescriptor> files;
};

// One end of a connection between two processes of this host: a Unix socket that keeps the bounds
// of messages. No call waits unless it says so, and files close on exec. The other side sees the
// end of a connection even if a child made by fork() still has it.
class PacketSocket {
 public:
  static constexpr std::size_t kMostBytes = 64 << 10;  // of a packet
  static constexpr std::size_t kMostFiles = 8;

  PacketSocket() = default;
  // Takes a socket of SOCK_SEQPACKET that does not block.
  explicit PacketSocket(FileDescriptor socket) : socket_(std::move(socket)) {}
  PacketSocket(PacketSocket&&) noexcept = default;
  PacketSocket& operator=(PacketSocket&&) noexcept = default;
  ~PacketSocket();

  // Makes a socket of the kind that this class takes, without a connection. Empty if there is none
  // to be had, with the cause in errno.
  static FileDescriptor make();

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int get() const { return socket_.get(); }

  // Returns process and user at the other end, as they were when it connected or listened; -1 if
  // nobody knows.
  pid_t peer_process() const;
  int64_t peer_user() const;

  // Sends a packet, and waits until the deadline for room. Returns 0 or errno; ETIMEDOUT at the
  // deadline, EPIPE if the other side is gone.
  int send(std::string_view text, std::span<const int> files, const Deadline& deadline) const;

  enum class Received { kPacket, kNothing, kEnd, kFailed };
  // Takes the next packet if there is one. kFailed leaves the cause in `error`: EMFILE if this
  // process may open no more files, EMSGSIZE for a packet of more than kMostBytes.
  Received receive(Packet& packet, int& error) const;

 private:
  FileDescriptor socket_;
};

// Waits until one of the sockets can be read, or `ms` have passed; signals do not end the wait
// early by more than a round. `readable` tells for each socket.
void wait_for_any(std::span<const int> sockets, int ms, std::vector<bool>& readable);

}  // namespace moejit::runtime
