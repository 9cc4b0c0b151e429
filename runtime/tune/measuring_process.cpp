// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/measuring_process.h"

#include "compiler/support/fork.h"
#include "runtime/tune/device_measurer.h"
#include "runtime/tune/serve_measurer.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fmt/core.h>
#include <numeric>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace moejit::tune {
namespace {

using Call = MeasureRequest::Call;

// Making a layer's operands on the host, or waiting for a compiler, takes longer than a kernel may.
// Neither means that a kernel hangs.
constexpr double kOpenSeconds = 1800.0;
// A block of launches counts as hanging if it takes longer than its limit. The limit is this many
// times the usual version's time, plus a version's limit.
constexpr double kSlowest = 20.0;
constexpr double kEndSeconds = 10.0;

tl::unexpected<Error> no_process(std::string_view what) {
  return fail(Stage::kCommand, ErrorCode::kInternal,
              fmt::format("cannot start the process that measures: {}", what));
}

}  // namespace

MeasuringProcess::MeasuringProcess(Start start, double limit_seconds)
    : start_(std::move(start)), limit_seconds_(limit_seconds) {}

MeasuringProcess::~MeasuringProcess() {
  if (child_ != 0) end_child(false);
}

Result<MeasuredDevice> MeasuringProcess::device() {
  if (child_ == 0) MOEJIT_TRY(start_child());
  return device_;
}

Result<void> MeasuringProcess::prefetch() {
  MOEJIT_TRY(ask({.call = Call::kPrefetch}, kOpenSeconds));
  return {};
}

Result<void> MeasuringProcess::compile(std::size_t problem) {
  MOEJIT_TRY(ask({.call = Call::kCompile, .index = static_cast<int64_t>(problem)}, kOpenSeconds));
  return {};
}

Result<void> MeasuringProcess::open(std::size_t problem) {
  MOEJIT_TRY(ask({.call = Call::kOpen, .index = static_cast<int64_t>(problem)}, kOpenSeconds));
  launch_us_ = 0.0;
  return {};
}

Result<int64_t> MeasuringProcess::make(int32_t candidate) {
  MOEJIT_TRY_ASSIGN(const MeasureReply reply,
                    ask({.call = Call::kMake, .index = candidate}, limit_seconds_));
  if (reply.numbers.size() != 1) return lose(Fault::kCrashes, 0.0);
  return static_cast<int64_t>(reply.numbers.front());
}

Result<double> MeasuringProcess::heat(double seconds, double most_seconds) {
  MOEJIT_TRY_ASSIGN(const MeasureReply reply,
                    ask({.call = Call::kHeat, .seconds = seconds, .most_seconds = most_seconds},
                        kSlowest * (seconds + most_seconds) + limit_seconds_));
  if (reply.numbers.size() != 1) return lose(Fault::kCrashes, 0.0);
  launch_us_ = reply.numbers.front();
  return launch_us_;
}

Result<TimedBlocks> MeasuringProcess::time(std::span<const int32_t> candidates, int64_t launches) {
  return ask_times({.call = Call::kTime,
                    .index = launches,
                    .candidates = {candidates.begin(), candidates.end()}},
                   candidates.size(), limit_seconds_);
}

Result<TimedBlocks> MeasuringProcess::ask_times(const MeasureRequest& request, std::size_t blocks,
                                                double more_seconds) {
  const double expected_us =
      launch_us_ * static_cast<double>(request.index) * static_cast<double>(blocks);
  MOEJIT_TRY_ASSIGN(MeasureReply reply, ask(request, more_seconds + kSlowest * 1e-6 * expected_us));
  if (reply.numbers.size() != blocks) return lose(Fault::kCrashes, 0.0);
  return TimedBlocks{
      .microseconds = std::move(reply.numbers), .megahertz = reply.megahertz, .watts = reply.watts};
}

Result<void> MeasuringProcess::start_child() {
  is_usable_ = false;  // until the child has told what device it measures on
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return no_process(errno_text(errno));
  FileDescriptor mine(ends[0]);
  const FileDescriptor its(ends[1]);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) serve_measurer(its.get(), parent, start_);
  if (child_ < 0) {
    child_ = 0;
    return no_process(errno_text(errno));
  }
  socket_ = std::move(mine);
  received_.clear();
  MOEJIT_TRY_ASSIGN(const MeasureReply reply, exchange({.call = Call::kDevice}, kOpenSeconds));
  if (reply.texts.size() != 4) return no_process("it does not tell its device");
  MOEJIT_TRY_ASSIGN(const compiler::Target target, compiler::parse_target(reply.texts[0]));
  device_ = {.target = target,
             .gpu = reply.texts[1],
             .description = reply.texts[2],
             .cuda_version = reply.texts[3]};
  is_usable_ = true;
  return {};
}

Result<MeasureReply> MeasuringProcess::ask(const MeasureRequest& request, double limit_seconds) {
  if (child_ == 0) MOEJIT_TRY(start_child());
  return exchange(request, limit_seconds);
}

Result<MeasureReply> MeasuringProcess::exchange(const MeasureRequest& request,
                                                double limit_seconds) {
  loss_.reset();
  std::string line;
  LineEnd end = LineEnd::kClosed;
  if (write_socket_line(socket_.get(), encode(request)))
    end = read_socket_line(socket_.get(), limit_seconds, received_, line);
  if (end == LineEnd::kTimedOut) return lose(Fault::kHangs, limit_seconds);
  auto reply = end == LineEnd::kRead ? decode_measure_reply(line) : std::nullopt;
  if (!reply) return lose(Fault::kCrashes, limit_seconds);
  if (reply->is_last) {
    end_child(true);
    loss_ = Fault::kCrashes;
  }
  if (reply->error) return tl::make_unexpected(std::move(*reply->error));
  return std::move(*reply);
}

tl::unexpected<Error> MeasuringProcess::lose(Fault fault, double limit_seconds) {
  const bool hangs = fault == Fault::kHangs;
  const std::string ending = end_child(hangs);
  loss_ = fault;
  if (hangs)
    return fail(Stage::kLaunch, ErrorCode::kDriver,
                fmt::format("the process that measures did not answer for {:.0f} s", limit_seconds),
                "--candidate-limit sets how long a candidate may take");
  return fail(Stage::kLaunch, ErrorCode::kDriver,
              fmt::format("the process that measures {}", ending));
}

std::string MeasuringProcess::end_child(bool is_killed) {
  socket_ = FileDescriptor();  // closing it ends the child, unless the child hangs
  if (is_killed) kill(child_, SIGKILL);
  const pid_t child = std::exchange(child_, 0);
  for (double waited = 0.0; waited < kEndSeconds; waited += 0.01) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return wait_status_text(status);
    if (ended < 0 && errno != EINTR) break;
    if (waited > 0.5 * kEndSeconds) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "does not end";
}

}  // namespace moejit::tune
