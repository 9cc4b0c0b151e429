// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/group/packet_socket.h"

#include <string>
#include <sys/stat.h>

namespace moejit::runtime {

// Returns kInvalidValue for a path that no Unix socket can have.
Result<void> check_socket_path(const std::string& path);

// A socket that listens at a path of the file system, readable and writable for its user alone. Its
// file goes with it.
class ListeningSocket {
 public:
  // Listens at the path, in place of a file that a dead process left there. If a living process
  // listens there, returns an empty socket and connects `occupant` to that one. Errors:
  // kInvalidValue if something else has the path, or another user; kFileWrite if no socket can be
  // made there.
  static Result<ListeningSocket> open(const std::string& path, PacketSocket& occupant);
  ListeningSocket(ListeningSocket&& other) noexcept = default;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept = default;
  ~ListeningSocket() { close(); }

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int get() const { return socket_.get(); }
  // Returns whether the path still leads here.
  bool has_path() const;
  // Returns the next connection; empty if there is none, with the cause in errno.
  PacketSocket accept() const;
  // Removes the file and refuses further connections, also those that wait.
  void close();

 private:
  ListeningSocket() = default;

  FileDescriptor socket_;
  std::string path_;
  dev_t device_ = 0;
  ino_t file_ = 0;
};

// Connects to who listens at the path, waiting for one until the deadline. Errors: kInvalidValue if
// something else has the path, or another user; kInterrupted if nobody listens in time.
Result<PacketSocket> connect_to(const std::string& path, const Deadline& deadline);

}  // namespace moejit::runtime
