// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/rendezvous_socket.h"

#include "runtime/group/rendezvous_messages.h"

#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace moejit::runtime {
namespace {

constexpr std::size_t kMostPathBytes = sizeof(sockaddr_un::sun_path) - 1;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Calls bind() or connect(). Returns 0 or errno.
int call_with(int (*function)(int, const sockaddr*, socklen_t), const FileDescriptor& socket,
              const std::string& path) {
  const sockaddr_un address = address_of(path);
  return function(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
             ? 0
             : errno;
}

// Checks whose file the path is. Nothing there is fine.
Result<void> check_owner(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode))
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format("{} is {}, wanted a path for a socket, at which nothing is", path,
                    S_ISDIR(found.st_mode) ? "a folder" : "a file that is no socket"),
        "name a path in a folder of your own: rank 0 makes the socket, and removes it");
  if (found.st_uid != ::geteuid())
    return refuse_rendezvous(ErrorCode::kInvalidValue,
                             fmt::format("the socket {} belongs to user {}, wanted one of user {}",
                                         path, found.st_uid, ::geteuid()),
                             "run all ranks as one user, and name a path in a folder of your own");
  return {};
}

// Checks who listens at the other end of a new connection, which may be another process than the
// one whose file check_owner() saw. Nothing is sent before.
Result<PacketSocket> check_peer(PacketSocket link, const std::string& path) {
  if (link.peer_user() == static_cast<int64_t>(::geteuid())) return link;
  return refuse_rendezvous(
      ErrorCode::kInvalidValue,
      fmt::format("process {} of user {} listens at {}, wanted rank 0 of user {}",
                  link.peer_process(), link.peer_user(), path, ::geteuid()),
      "run all ranks as one user, and name a path in a folder of your own");
}

tl::unexpected<Error> cannot_listen(const std::string& path, int error) {
  return refuse_rendezvous(ErrorCode::kFileWrite,
                           fmt::format("cannot listen at {}: {}", path, errno_text(error)),
                           "name a path in a folder that exists and that you can write");
}

}  // namespace

Result<void> check_socket_path(const std::string& path) {
  if (path.empty())
    return refuse_rendezvous(ErrorCode::kInvalidValue,
                             "the path of the rendezvous is empty, wanted one for a socket");
  if (path.size() > kMostPathBytes || path.find('\0') != std::string::npos)
    return refuse_rendezvous(
        ErrorCode::kInvalidValue,
        fmt::format(
            "the path of the rendezvous has {} bytes, wanted 1 to {} and none that is 0: {}",
            path.size(), kMostPathBytes, path.c_str()),
        "sockets have short paths: name one in /tmp or /run/user");
  return {};
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path, PacketSocket& occupant) {
  ListeningSocket made;
  // Others may come and go at the path meanwhile, which a few attempts outlast.
  for (int attempt = 0; attempt < 10; ++attempt) {
    MOEJIT_TRY(check_owner(path));
    FileDescriptor socket = PacketSocket::make();
    // Before it has a name, so that no other user can come first.
    if (!socket || ::fchmod(socket.get(), 0600) != 0) return cannot_listen(path, errno);
    const int error = call_with(::bind, socket, path);
    if (error == 0) {
      struct stat file {};
      constexpr int kBacklog = 64;
      if (::lstat(path.c_str(), &file) != 0 || ::listen(socket.get(), kBacklog) != 0)
        return cannot_listen(path, errno);
      made.socket_ = std::move(socket);
      made.path_ = path;
      made.device_ = file.st_dev;
      made.file_ = file.st_ino;
      return made;
    }
    if (error != EADDRINUSE) return cannot_listen(path, error);
    const int refused = call_with(::connect, socket, path);
    if (refused == 0) {
      MOEJIT_TRY_ASSIGN(occupant, check_peer(PacketSocket(std::move(socket)), path));
      return made;
    }
    if (refused == EAGAIN)
      return refuse_rendezvous(ErrorCode::kInvalidValue,
                               fmt::format("another process listens at {} already", path),
                               "name another path for each group");
    // Nobody listens any more: a dead process left the file.
    if (refused == ECONNREFUSED && ::unlink(path.c_str()) != 0 && errno != ENOENT)
      return cannot_listen(path, errno);
  }
  return cannot_listen(path, EADDRINUSE);
}

bool ListeningSocket::has_path() const {
  struct stat file {};
  return ::lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == file_;
}

PacketSocket ListeningSocket::accept() const {
  int socket = -1;
  do socket = ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  while (socket < 0 && errno == EINTR);
  return PacketSocket(FileDescriptor(socket));
}

void ListeningSocket::close() {
  if (!socket_) return;
  if (has_path()) ::unlink(path_.c_str());
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.close();
}

Result<PacketSocket> connect_to(const std::string& path, const Deadline& deadline) {
  for (;;) {
    MOEJIT_TRY(check_owner(path));
    FileDescriptor socket = PacketSocket::make();
    if (!socket) return cannot_listen(path, errno);
    const int error = call_with(::connect, socket, path);
    if (error == 0) return check_peer(PacketSocket(std::move(socket)), path);
    if (error != ENOENT && error != ECONNREFUSED && error != EAGAIN && error != EINTR)
      return refuse_rendezvous(ErrorCode::kInvalidValue,
                               fmt::format("cannot connect to {}: {}", path, errno_text(error)));
    if (deadline.has_passed())
      return refuse_rendezvous(
          ErrorCode::kInterrupted,
          fmt::format(
              "rank 0 did not come to {} within {} ms{}", path, deadline.ms(),
              error == ECONNREFUSED ? "; the socket there is of a process that is gone" : ""),
          "start all ranks with the same path; or rank 0 left, and its error says why");
    constexpr int64_t kRoundMs = 5;
    ::poll(nullptr, 0, deadline.left(kRoundMs));
  }
}

}  // namespace moejit::runtime
