// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"
#include "compiler/support/file.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace moejit::cache {

// A stripe that this thread holds; the destructor lets go of it, or the kernel when the process
// dies. The child of a fork() does not keep it.
class StripeLock {
 public:
  StripeLock(StripeLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StripeLock& operator=(StripeLock&&) = delete;
  ~StripeLock();

 private:
  friend class StripeLocks;
  explicit StripeLock(int fd) : fd_(fd) {}
  int fd_;
};

// Locks by which the processes of one node agree on who compiles a kernel that a cache lacks. The
// others wait for it instead of compiling it too. They save work and are never needed for a right
// result: a process that gets no lock goes on without.
//
// The keys share 256 lock files, which stay forever: if one were removed, two processes could lock
// two files of the same name. The folder belongs to the user and is on a local disk of the node.
class StripeLocks {
 public:
  static constexpr std::size_t kStripes = 256;

  // Opens the folder and makes it with mode 0700 if need be (but not its parent). Error
  // kCacheUnusable: it cannot be made, another user owns it or may write to it, or it is on a
  // network file system.
  static Result<std::unique_ptr<StripeLocks>> open(const std::string& folder);

  // Waits for the stripe of `key`, which other keys may share. Returns none after `patience`, if
  // `stop` is requested, or if the system gives no locks. Returns none also if this thread holds a
  // stripe already, since it could then wait for a thread that waits for it. After a wait that
  // lasted `patience`, later calls do not wait for the stripe until it was free once. Its holder
  // may be stopped for good.
  std::optional<StripeLock> lock(const Digest& key, std::chrono::milliseconds patience,
                                 const std::stop_token& stop = {});

  const std::string& folder() const { return path_; }

 private:
  StripeLocks(std::string path, FileDescriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  std::string path_;
  FileDescriptor folder_;
  std::array<std::atomic<bool>, kStripes> is_stuck_{};
};

// Opens the folder for lock files if the caller names none: the first of MOEJIT_RUN_DIR,
// XDG_RUNTIME_DIR/moejit, /run/user/UID/moejit and /tmp/moejit-UID that can be opened. Error
// kCacheUnusable says why the last of them cannot be opened, or that MOEJIT_RUN_DIR is not
// absolute.
Result<std::unique_ptr<StripeLocks>> open_default_stripe_locks();

}  // namespace moejit::cache
