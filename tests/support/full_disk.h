// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstddef>
#include <sys/resource.h>

namespace moejit::testing {

// Lets files of this process end at so many bytes while it lives, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);  // so that write() returns an error
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    rlimit limit = old_limit_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int) = nullptr;
};

}  // namespace moejit::testing
