// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/serve_measurer.h"

#include "runtime/tune/device_measurer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace moejit::tune {
namespace {

using Call = MeasureRequest::Call;
using SteadyClock = std::chrono::steady_clock;

MeasureReply reply_of(const Result<void>& done) {
  MeasureReply reply;
  if (!done) reply.error = done.error();
  return reply;
}

template <typename Number>
MeasureReply reply_of(const Result<Number>& number) {
  MeasureReply reply;
  if (number)
    reply.numbers = {static_cast<double>(*number)};
  else
    reply.error = number.error();
  return reply;
}

MeasureReply reply_of(const Result<TimedBlocks>& timed) {
  MeasureReply reply;
  if (!timed) {
    reply.error = timed.error();
    return reply;
  }
  reply.numbers = timed->microseconds;
  reply.megahertz = timed->megahertz;
  reply.watts = timed->watts;
  return reply;
}

MeasureReply describe(const MeasuredDevice& device) {
  MeasureReply reply;
  reply.texts = {to_string(device.target), device.gpu, device.description, device.cuda_version};
  return reply;
}

MeasureReply answer(const MeasureRequest& request, DeviceMeasurer& measurer) {
  const auto index = static_cast<std::size_t>(request.index);
  switch (request.call) {
    case Call::kDevice: return describe(measurer.device());
    case Call::kPrefetch: return reply_of(measurer.prefetch());
    case Call::kCompile: return reply_of(measurer.compile(index));
    case Call::kOpen: return reply_of(measurer.open(index));
    case Call::kMake: return reply_of(measurer.make(static_cast<int32_t>(request.index)));
    case Call::kHeat: return reply_of(measurer.heat(request.seconds, request.most_seconds));
    case Call::kTime: return reply_of(measurer.time(request.candidates, request.index));
  }
  return reply_of(Result<void>(fail(Stage::kCommand, ErrorCode::kInternal, "no such request")));
}

// Answers requests until there are no more.
void serve(int socket, const MeasuringProcess::Start& start) {
  std::string received, line;
  std::unique_ptr<DeviceMeasurer> measurer;
  while (read_socket_line(socket, std::numeric_limits<double>::infinity(), received, line) ==
         LineEnd::kRead) {
    const auto request = decode_measure_request(line);
    if (!request) return;
    MeasureReply reply;
    if (measurer == nullptr) {
      auto started = start();
      if (started)
        measurer = std::move(*started);
      else
        reply = reply_of(Result<void>(tl::make_unexpected(std::move(started.error()))));
    }
    if (measurer != nullptr) reply = answer(*request, *measurer);
    reply.is_last = measurer == nullptr || !measurer->is_usable();
    if (!write_socket_line(socket, encode(reply)) || reply.is_last) break;
  }
  // The device's memory is freed when the process ends. Freeing it here could wait for a GPU that
  // no longer answers.
  static_cast<void>(measurer.release());
}

}  // namespace

void serve_measurer(int socket, pid_t parent, const MeasuringProcess::Start& start) {
  // Ctrl-C is for the parent, which lets the running block end.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  // Closes files that came from the parent: a lock on one would outlive the parent.
  if (socket > 3) close_range(3, static_cast<unsigned>(socket) - 1, 0);
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent) serve(socket, start);
  _exit(0);
}

LineEnd read_socket_line(int socket, double seconds, std::string& received, std::string& line) {
  const auto start = SteadyClock::now();
  while (true) {
    if (const std::size_t end = received.find('\n'); end != std::string::npos) {
      line = received.substr(0, end);
      received.erase(0, end + 1);
      return LineEnd::kRead;
    }
    const double left = seconds - std::chrono::duration<double>(SteadyClock::now() - start).count();
    if (left <= 0.0) return LineEnd::kTimedOut;
    pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::ceil(1e3 * std::min(left, 60.0))));
    if (ready < 0 && errno != EINTR) return LineEnd::kClosed;
    if (ready <= 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return LineEnd::kClosed;
    received.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

bool write_socket_line(int socket, std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t got = send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    sent += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace moejit::tune
