// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/watched_process.h"

#include "compiler/support/file.h"
#include "compiler/support/fork.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fmt/core.h>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace moejit::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostErrorBytes = 64 << 10;
constexpr auto kPollTime = std::chrono::milliseconds(10);
constexpr auto kEndTime = std::chrono::seconds(10);  // for a process that was killed

int64_t now() { return Clock::now().time_since_epoch().count(); }

}  // namespace

struct Watch::Shared {
  std::atomic<Doing> doing = Doing::kOther;
  std::atomic<std::size_t> problem = 0;
  std::atomic<int32_t> candidate = 0;
  std::atomic<double> limit_seconds = kOpenSeconds;
  std::atomic<int64_t> began = 0;            // what it is doing, by the clock
  std::atomic<int64_t> measuring_since = 0;  // 0: not yet
  std::atomic<bool> stops = false;
  std::atomic<bool> has_ended = false;  // `work` has returned
  std::atomic<bool> is_lost = false;
  // The error of `work`, or the message of a loss: message, hint and detail, each with a zero byte
  // behind it.
  std::atomic<bool> has_error = false;
  Stage stage = Stage::kCommand;
  ErrorCode code = ErrorCode::kInternal;
  std::array<char, kMostErrorBytes> text{};

  void put(const Error& error) {
    stage = error.stage;
    code = error.code;
    std::size_t end = 0;
    for (const std::string* part : {&error.message, &error.hint, &error.detail}) {
      const std::size_t bytes = std::min(part->find('\0'), part->size());
      end += part->copy(text.data() + end, std::min(bytes, text.size() - 3 - end));
      text[end++] = '\0';
    }
    has_error = true;
  }

  Error error() const {
    Error error{stage, code, {}, {}, {}};
    const char* part = text.data();
    for (std::string* one : {&error.message, &error.hint, &error.detail}) {
      *one = part;
      part += one->size() + 1;
    }
    return error;
  }
};

Watch::Watch() {
  static_assert(std::atomic<double>::is_always_lock_free);
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared_ = new (memory) Shared;
}

Watch::~Watch() { ::munmap(shared_, sizeof(Shared)); }

void Watch::begin(Doing doing, std::size_t problem, int32_t candidate, double limit_seconds) {
  shared_->limit_seconds = kOpenSeconds;  // until all of it is told
  shared_->began = now();
  shared_->doing = doing;
  shared_->problem = problem;
  shared_->candidate = candidate;
  shared_->limit_seconds = limit_seconds;
}

void Watch::begin_measuring() {
  int64_t not_yet = 0;
  shared_->measuring_since.compare_exchange_strong(not_yet, now());
}

void Watch::lose(const std::string& message) {
  shared_->put({Stage::kLaunch, ErrorCode::kDriver, message, {}, {}});
  shared_->is_lost = true;
}

bool Watch::stops() const { return shared_->stops; }

std::optional<Clock::time_point> Watch::measuring_since() const {
  if (shared_->measuring_since == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(shared_->measuring_since));
}

// A child process, seen from its parent.
class WatchedProcess {
 public:
  explicit WatchedProcess(Watch& watch) : shared_(*watch.shared_) {}

  // Starts the child, which runs `work`.
  Result<void> start(const WatchedWork& work, std::span<const Loss> losses) {
    shared_.has_ended = shared_.is_lost = shared_.has_error = false;
    shared_.doing = Doing::kOther;
    shared_.limit_seconds = Watch::kOpenSeconds;
    shared_.began = now();
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ == 0) run(work, losses, parent);
    if (child_ < 0)
      return fail(Stage::kCommand, ErrorCode::kInternal,
                  fmt::format("cannot start the process that measures: {}", errno_text(errno)));
    return {};
  }

  // Waits until the child has ended, or ends it if it hangs. Returns none if `work` has returned.
  std::optional<Loss> wait(TuneObserver& observer) {
    while (true) {
      if (const auto status = ended_within(kPollTime)) return loss_of(*status);
      if (observer.stops()) shared_.stops = true;
      const double limit = shared_.limit_seconds;
      if (std::chrono::duration<double>(Clock::duration(now() - shared_.began)).count() <= limit)
        continue;
      kill(child_, SIGKILL);
      static_cast<void>(ended_within(kEndTime));
      return loss(Fault::kHangs,
                  fmt::format("the process that measures did not answer for {:.0f} s", limit));
    }
  }

  Result<void> result() const {
    if (!shared_.has_error) return {};
    return tl::make_unexpected(shared_.error());
  }

 private:
  [[noreturn]] void run(const WatchedWork& work, std::span<const Loss> losses, pid_t parent) {
    // Ctrl-C is for the parent, which lets the running block end.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent) {
      const Result<void> done = work(losses);
      if (!done && !shared_.is_lost) shared_.put(done.error());
      shared_.has_ended = true;
    }
    _exit(0);
  }

  // Returns the child's status from waitpid() if it ends in that time; 0 if nobody keeps it, as
  // where SIGCHLD is ignored.
  std::optional<int> ended_within(Clock::duration time) const {
    for (const auto end = Clock::now() + time;; std::this_thread::sleep_for(kPollTime)) {
      int status = 0;
      const pid_t ended = waitpid(child_, &status, WNOHANG);
      if (ended == child_ || (ended < 0 && errno == ECHILD)) return status;
      if (Clock::now() >= end) return std::nullopt;
    }
  }

  std::optional<Loss> loss_of(int status) const {
    if (shared_.is_lost) return loss(Fault::kCrashes, shared_.error().message);
    if (shared_.has_ended) return std::nullopt;
    return loss(Fault::kCrashes, "the process that measures " + wait_status_text(status));
  }

  Loss loss(Fault fault, std::string message) const {
    return {.doing = shared_.doing,
            .problem = shared_.problem,
            .candidate = shared_.candidate,
            .fault = fault,
            .message = std::move(message)};
  }

  Watch::Shared& shared_;
  pid_t child_ = 0;
};

Result<void> run_watched(Watch& watch, const WatchedWork& work, TuneObserver& observer) {
  std::vector<Loss> losses;
  while (true) {
    WatchedProcess process(watch);
    MOEJIT_TRY(process.start(work, losses));
    std::optional<Loss> loss = process.wait(observer);
    observer.end_progress();
    if (!loss) return process.result();
    losses.push_back(std::move(*loss));
    const Loss& last = losses.back();
    const auto others = std::ranges::count(losses, Doing::kOther, &Loss::doing);
    if (last.doing == Doing::kOther && (last.fault == Fault::kHangs || others > 1))
      return fail(Stage::kLaunch, ErrorCode::kDriver, last.message);
    if (observer.stops()) return {};
  }
}

}  // namespace moejit::tune
