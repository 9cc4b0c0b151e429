// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"

#include "compiler/support/exhausted.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace moejit {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{1} << 46;

// Returns a name that is unique in this folder. Process ids are unique, except across machines that
// share the folder; there O_EXCL makes the next attempt take another number.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> next{0};
  return fmt::format("{}.{}-{}.tmp", path, getpid(), next.fetch_add(1));
}

Result<FileDescriptor> create_temporary(const std::string& path, mode_t mode, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    name = temporary_name(path);
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file) return file;
    if (errno != EEXIST) break;
  }
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write {}: {}", path, errno_text(errno)));
}

using Pieces = std::span<const std::span<const std::byte>>;

int write_pieces(const FileDescriptor& file, Pieces pieces) {
  for (const std::span<const std::byte> piece : pieces)
    if (const int error = write_all(file.get(), piece); error != 0) return error;
  return 0;
}

int write_sync_close(FileDescriptor& file, Pieces pieces) {
  if (const int error = write_pieces(file, pieces); error != 0) return error;
  if (const int error = sync_file(file.get()); error != 0) return error;
  return file.close();
}

// Syncs the folder, so that the new name survives a power cut. Not every file system can do it, and
// the content is safe in any case.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) sync_file(opened.get());
}

// Returns whether the path is a pipe or device such as /dev/stdout, which must not be replaced by a
// file.
bool is_special(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

Result<void> write_in_place(const std::string& path, Pieces pieces) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  int error = file ? write_pieces(file, pieces) : errno;
  if (error == 0) error = file.close();
  if (error == 0) return {};
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write {}: {}", path, errno_text(error)));
}

Result<void> write_pieces_to(const std::string& path, Pieces pieces, mode_t mode) {
  if (is_special(path)) return write_in_place(path, pieces);
  std::string name;
  MOEJIT_TRY_ASSIGN(FileDescriptor file, create_temporary(path, mode, name));
  int error = write_sync_close(file, pieces);
  if (error == 0 && std::rename(name.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) {
    sync_folder_of(path);
    return {};
  }
  ::unlink(name.c_str());
  return fail(Stage::kFile, ErrorCode::kFileWrite,
              fmt::format("cannot write {}: {}", path, errno_text(error)));
}

}  // namespace

FileDescriptor::~FileDescriptor() { close(); }

int FileDescriptor::close() {
  if (fd_ < 0) return 0;
  // Linux frees the descriptor even if close() is interrupted.
  const int result = ::close(std::exchange(fd_, -1));
  return result == 0 || errno == EINTR ? 0 : errno;
}

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

int sync_file(int fd) {
  while (::fsync(fd) != 0) {
    // Some file systems have no fsync for what we opened; then there is nothing to wait for.
    if (errno == EINVAL || errno == EROFS) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

int read_all(int fd, std::int64_t max_bytes, std::vector<std::byte>& bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return errno;
  if (status.st_size > max_bytes) return EFBIG;
  std::size_t used = bytes.size();
  // Reads one byte more than the size, so that the end is seen without growing.
  bytes.resize(used + static_cast<std::size_t>(status.st_size) + 1);
  const std::size_t limit = used + static_cast<std::size_t>(max_bytes);
  while (true) {
    if (used == bytes.size()) bytes.resize(2 * used);
    const ssize_t got = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > limit) return EFBIG;
  }
  bytes.resize(used);
  return 0;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::string errno_text(int error) {
  char buffer[128];
  // This is the GNU function, which may return a constant instead of filling the buffer.
  return ::strerror_r(error, buffer, sizeof(buffer));
}

namespace {

// Returns the size of a file that is too long, in words: a pipe has no length.
std::string length_of(int fd, std::int64_t max_bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return fmt::format("more than {}", max_bytes);
  return fmt::format("{}", status.st_size);
}

Result<std::vector<std::byte>> read_file_up_to(const std::string& path, std::int64_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("cannot open {}: {}", path, errno_text(errno)), hint_for_errno(errno));
  std::vector<std::byte> bytes;
  if (const int error = read_all(file.get(), max_bytes, bytes); error == EISDIR)
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("{} is a folder, wanted a file", path));
  else if (error == EFBIG)
    return fail(Stage::kFile, ErrorCode::kInvalidValue,
                fmt::format("{}: got {} bytes, wanted at most {}", path,
                            length_of(file.get(), max_bytes), max_bytes));
  else if (error != 0)
    return fail(Stage::kFile, ErrorCode::kFileRead,
                fmt::format("cannot read {}: {}", path, errno_text(error)));
  return bytes;
}

}  // namespace

Result<std::vector<std::byte>> read_file(const std::string& path) {
  return read_file_up_to(path, kLargestFile);
}

Result<std::string> read_text_file(const std::string& path) {
  return read_text_file(path, kLargestFile);
}

Result<std::string> read_text_file(const std::string& path, std::int64_t max_bytes) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file_up_to(path, max_bytes));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<void> write_file(const std::string& path, std::span<const std::byte> bytes, mode_t mode) {
  return write_pieces_to(path, Pieces(&bytes, 1), mode);
}

Result<void> write_file(const std::string& path, std::string_view text) {
  return write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

Result<void> write_file(const std::string& path, Pieces pieces) {
  return write_pieces_to(path, pieces, 0666);
}

}  // namespace moejit
