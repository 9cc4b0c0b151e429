// SPDX-License-Identifier: Apache-2.0
#include "cache/stripe_locks.h"

#include "cache/network_file_system.h"
#include "compiler/support/env.h"
#include "compiler/support/fork.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/core.h>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace moejit::cache {
namespace {

using Clock = std::chrono::steady_clock;

// Keeps all lock files that are open. The child of a fork() would share the locks of its parent and
// keep them when the parent dies, so it closes the files.
class OpenLockFiles final : private ForkHandler {
 public:
  OpenLockFiles() { register_for_fork(); }

  int open(int folder, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const int fd = ::openat(folder, name.c_str(),
                            O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0) files_.insert(fd);
    return fd;
  }
  void close(int fd) {
    const std::lock_guard lock(mutex_);
    // In a child the file is closed already, and the number may belong to another file.
    if (files_.erase(fd) == 0) return;
    ::flock(fd, LOCK_UN);  // releases the lock even if somebody made a copy of the descriptor
    ::close(fd);
  }

 private:
  void before_fork() override { mutex_.lock(); }
  void after_fork_in_parent() override { mutex_.unlock(); }
  void after_fork_in_child() override {
    for (const int fd : files_) ::close(fd);
    files_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<int> files_;
};

OpenLockFiles& open_lock_files() {
  static OpenLockFiles& files = *new OpenLockFiles;
  return files;
}

thread_local bool this_thread_holds_one = false;

tl::unexpected<Error> unusable_locks(const std::string& folder, std::string_view reason) {
  return fail(Stage::kCache, ErrorCode::kCacheUnusable,
              fmt::format("folder of lock files {}: {}", folder, reason),
              "set MOEJIT_RUN_DIR to a folder of your own on a disk of this machine");
}

// Returns whether the folder is ours. A folder that `sudo` left in the environment is not: our
// files there would be in its owner's way.
bool is_own_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

}  // namespace

StripeLock::~StripeLock() {
  if (fd_ < 0) return;
  this_thread_holds_one = false;
  open_lock_files().close(fd_);
}

Result<std::unique_ptr<StripeLocks>> StripeLocks::open(const std::string& folder) {
  if (!folder.starts_with('/')) return unusable_locks(folder, "it is not absolute");
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST && ::access(folder.c_str(), F_OK) != 0)
    return unusable_locks(folder, errno_text(errno));
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) return unusable_locks(folder, errno_text(errno));
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) return unusable_locks(folder, errno_text(errno));
  if (status.st_uid != ::geteuid())
    return unusable_locks(
        folder, fmt::format("it belongs to user {}, wanted user {}", status.st_uid, ::geteuid()));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return unusable_locks(folder, fmt::format("its mode is {:04o}: other users may write to it",
                                              status.st_mode & 07777U));
  if (const auto system = network_file_system_of(opened.get()); !system.empty())
    return unusable_locks(folder, fmt::format("it is on {}, a network file system, whose locks "
                                              "cannot be relied on",
                                              system));
  return std::unique_ptr<StripeLocks>(new StripeLocks(folder, std::move(opened)));
}

std::optional<StripeLock> StripeLocks::lock(const Digest& key, std::chrono::milliseconds patience,
                                            const std::stop_token& stop) {
  using std::chrono::milliseconds;
  if (this_thread_holds_one) return std::nullopt;
  const std::size_t stripe = key.bytes[0];
  static_assert(kStripes == 256, "a stripe for each value of a byte");
  // Each call has a file description of its own: threads exclude each other as processes do.
  const int fd = open_lock_files().open(folder_.get(), fmt::format("stripe-{:02x}", stripe));
  if (fd < 0) return std::nullopt;
  const Clock::time_point deadline = Clock::now() + patience;
  // flock() has no deadline, so this polls, soon at first.
  for (milliseconds pause{1};; pause = std::min(pause * 2, milliseconds{16})) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      is_stuck_[stripe] = false;
      this_thread_holds_one = true;
      return StripeLock(fd);
    }
    if (errno == EINTR) continue;
    const bool is_held = errno == EWOULDBLOCK;
    const bool is_late = Clock::now() >= deadline;
    if (is_held && is_late) is_stuck_[stripe] = true;
    if (!is_held || is_late || is_stuck_[stripe] || stop.stop_requested()) break;
    std::this_thread::sleep_for(pause);
  }
  open_lock_files().close(fd);
  return std::nullopt;
}

Result<std::unique_ptr<StripeLocks>> open_default_stripe_locks() {
  if (const auto named = environment(Variable::kRunDir)) return StripeLocks::open(*named);
  const std::string user = fmt::format("{}", ::geteuid());
  for (const std::string& runtime :
       {environment(Variable::kXdgRuntimeDir).value_or(""), "/run/user/" + user}) {
    if (!is_own_folder(runtime)) continue;
    if (auto opened = StripeLocks::open(runtime + "/moejit")) return opened;
  }
  return StripeLocks::open("/tmp/moejit-" + user);
}

}  // namespace moejit::cache
