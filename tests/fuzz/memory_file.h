// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moejit::testing {

// The path of a file in memory with these bytes, for what opens files by their names. It is the
// same file each time. Nobody but this user may write to it.
inline const std::string& file_with(std::span<const std::byte> bytes) {
  static const int fd = [] {
    const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
    if (file < 0 || ::fchmod(file, 0600) != 0) std::abort();
    return file;
  }();
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return path;
}

}  // namespace moejit::testing
