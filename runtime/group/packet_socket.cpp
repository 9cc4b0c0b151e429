// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/packet_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace moejit::runtime {
namespace {

// Room for the descriptors of a packet, aligned as the kernel wants it.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * PacketSocket::kMostFiles)> bytes{};
};

ucred credentials_of(int socket) {
  ucred peer{.pid = -1, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return {-1, 0, 0};
  return peer;
}

// Takes the descriptors of a message, so that none is lost whatever follows.
std::vector<FileDescriptor> files_of(msghdr& message) {
  std::vector<FileDescriptor> files;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      files.emplace_back(file);
    }
  }
  return files;
}

}  // namespace

int Deadline::left(int64_t most) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, most));
}

FileDescriptor PacketSocket::make() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

PacketSocket::~PacketSocket() {
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

pid_t PacketSocket::peer_process() const { return credentials_of(socket_.get()).pid; }

int64_t PacketSocket::peer_user() const {
  const ucred peer = credentials_of(socket_.get());
  return peer.pid == -1 ? -1 : static_cast<int64_t>(peer.uid);
}

int PacketSocket::send(std::string_view text, std::span<const int> files,
                       const Deadline& deadline) const {
  if (text.size() > kMostBytes || files.size() > kMostFiles) return EMSGSIZE;
  iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return 0;
    const int error = errno;
    if (error != EINTR && error != EAGAIN) return error;
    if (deadline.has_passed()) return ETIMEDOUT;
    pollfd waiting{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    if (error == EAGAIN) ::poll(&waiting, 1, deadline.left(1000));
  }
}

PacketSocket::Received PacketSocket::receive(Packet& packet, int& error) const {
  packet = {};
  packet.text.resize(kMostBytes);
  iovec part{.iov_base = packet.text.data(), .iov_len = packet.text.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t bytes = 0;
  // A reset comes once, before what was sent ahead of it.
  bool was_reset = false;
  do {
    bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !std::exchange(was_reset, true))));
  if (bytes < 0) {
    error = errno;
    if (error == EAGAIN) return Received::kNothing;
    return error == ECONNRESET ? Received::kEnd : Received::kFailed;
  }
  packet.files = files_of(message);
  packet.text.resize(static_cast<std::size_t>(bytes));
  if ((message.msg_flags & MSG_TRUNC) != 0)
    error = EMSGSIZE;
  else if ((message.msg_flags & MSG_CTRUNC) != 0)
    error = EMFILE;
  else
    return bytes == 0 ? Received::kEnd : Received::kPacket;
  return Received::kFailed;
}

void wait_for_any(std::span<const int> sockets, int ms, std::vector<bool>& readable) {
  std::vector<pollfd> waiting;
  for (const int socket : sockets)
    waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  const int ready = ::poll(waiting.data(), waiting.size(), ms);
  readable.assign(sockets.size(), false);
  for (std::size_t i = 0; ready > 0 && i < sockets.size(); ++i)
    readable[i] = waiting[i].revents != 0;
}

}  // namespace moejit::runtime
