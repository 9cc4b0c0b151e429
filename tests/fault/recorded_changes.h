// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// FAULT_RECORD: a line for each change that was made, for crash_states.py. Only calls that were
// done come here, and none of this changes errno. Fields are separated by tabs:
//
//   create, mkdir  INODE PATH      rename  0 FROM TO      unlink  0 PATH
//   write          INODE OFFSET HEX, for each block of 512 bytes
//   sync           INODE of a file or folder
//   open, truncate, chmod, times   INODE
namespace {

inline int record_file() {
  static const int file = [] {
    const char* path = std::getenv("FAULT_RECORD");
    if (path == nullptr) return -1;
    return static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }();
  return file;
}

class KeepErrno {
 public:
  ~KeepErrno() { errno = error_; }

 private:
  int error_ = errno;
};

bool is_recorded() { return record_file() >= 0; }

template <typename... Fields>
void record(const char* format, Fields... fields) {
  char line[2 * PATH_MAX + 64];
  const int length = std::snprintf(line, sizeof(line), format, fields...);
  ::syscall(SYS_write, record_file(), line, static_cast<std::size_t>(length));
}

unsigned long inode_of(int folder, const char* path) {
  struct stat status {};
  const bool is_there =
      ::syscall(SYS_newfstatat, folder, path, &status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0;
  return is_there ? status.st_ino : 0;
}
unsigned long inode_of(int fd) { return inode_of(fd, ""); }

struct AbsolutePath {
  AbsolutePath(int folder, const char* path) {
    long length = 0;
    if (path[0] != '/') {
      char link[64];
      std::snprintf(link, sizeof(link), folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
                    folder);
      length = ::syscall(SYS_readlinkat, AT_FDCWD, link, text, sizeof(text) / 2);
      if (length < 0) length = 0;
      text[length++] = '/';
    }
    std::snprintf(text + length, sizeof(text) - static_cast<std::size_t>(length), "%s", path);
  }
  char text[PATH_MAX + 256];
};

void record_write(int fd, const void* bytes, long written) {
  if (!is_recorded() || written <= 0) return;
  const KeepErrno keep;
  constexpr long kBlock = 512;
  const long begin = ::syscall(SYS_lseek, fd, 0L, SEEK_CUR) - written;
  const auto* byte = static_cast<const unsigned char*>(bytes);
  for (long at = 0; at < written;) {
    // To the next boundary of a block: what a disk writes at once.
    const long next = at + kBlock - (begin + at) % kBlock;
    const long end = next < written ? next : written;
    char hex[2 * kBlock + 1];
    for (long i = at; i < end; ++i) std::snprintf(hex + 2 * (i - at), 3, "%02x", byte[i]);
    record("write\t%lu\t%ld\t%s\n", inode_of(fd), begin + at, hex);
    at = end;
  }
}

}  // namespace
