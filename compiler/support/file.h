// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace moejit {

// Owns an open file; closing in the destructor cannot report, so writers call close().
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int close();  // 0 or errno; empty afterwards in any case

 private:
  int fd_ = -1;
};

// write_all(), sync_file() and read_all() return 0 or errno, for callers that act on the cause.
// They continue after interruptions by signals.
int write_all(int fd, std::span<const std::byte> bytes);
int sync_file(int fd);
// Appends to `bytes` until the end of the file; EFBIG if it is longer than `max_bytes`.
int read_all(int fd, std::int64_t max_bytes, std::vector<std::byte>& bytes);

// Returns whether the text can name a file in a folder. Names from files that somebody else wrote
// must not lead out of the folder: "../x", "/x" and ".." are none.
bool is_file_name(std::string_view name);

// Returns strerror()'s text ("No space left on device"), safe for threads.
std::string errno_text(int error);

// Reads the whole file. Errors: kFileNotFound (also a folder, or no permission), kFileRead.
Result<std::vector<std::byte>> read_file(const std::string& path);
Result<std::string> read_text_file(const std::string& path);
// Reads a file of at most `max_bytes`; kInvalidValue for a longer one, which is not read.
Result<std::string> read_text_file(const std::string& path, std::int64_t max_bytes);

// Writes to a temporary file beside `path`, syncs it and renames it. A reader sees the old content
// or all of the new one, also after a power cut. A failure (kFileWrite) leaves nothing behind. The
// file's mode is `mode` less the umask from the start.
Result<void> write_file(const std::string& path, std::span<const std::byte> bytes,
                        mode_t mode = 0666);
Result<void> write_file(const std::string& path, std::string_view text);
// Writes the pieces one after the other, for content that would be expensive to copy together.
Result<void> write_file(const std::string& path,
                        std::span<const std::span<const std::byte>> pieces);

}  // namespace moejit
