// SPDX-License-Identifier: Apache-2.0
// Handles the files of a cache folder. Every call may fail at any time, on a file system that is
// slow or lies: the caller gets the errno and goes on without the file.
#include "cache/cache_folder.h"
#include "cache/entry.h"
#include "cache/temporary_files.h"
#include "cache/trust.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moejit::cache {
namespace {

constexpr std::size_t kQuarantined = 16;
constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kHourNs = 3600 * kSecondNs;
constexpr int kOpenSubfolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

// Marks the open file as used just now; by descriptor, so that no other file can be meant, and at
// most hourly, so that reading causes no writes. The access time would not do: many file systems
// are mounted without it.
void mark_use(int fd, const struct stat& status) {
  if (std::abs(now_ns() - nanoseconds(status.st_mtim)) > kHourNs) ::futimens(fd, nullptr);
}

// Reads exactly `bytes.size()` bytes; EIO if the file has become shorter.
int read_whole(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

std::string folder_of(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? "." : name.substr(0, slash);
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return nanoseconds(now);
}

int CacheFolder::read(const std::string& name, std::vector<std::byte>& bytes,
                      bool marks_use) const {
  if (!version_) return ENOENT;
  // Non-blocking: a pipe of that name must not make us wait.
  const FileDescriptor file(
      ::openat(version_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode) || !is_trusted_owner(status.st_uid)) return EPERM;
  if (status.st_size > kLargestFile) return EFBIG;
  bytes.resize(static_cast<std::size_t>(status.st_size));
  if (const int error = read_whole(file.get(), bytes); error != 0) return error;
  if (marks_use) mark_use(file.get(), status);
  return 0;
}

int CacheFolder::write_temporary(const std::string& name, std::span<const std::byte> bytes) const {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  FileDescriptor file(::openat(version_.get(), name.c_str(), kFlags, 0600));
  if (!file && errno == ENOENT) {  // somebody removed the folder
    if (::mkdirat(version_.get(), "tmp", 0700) != 0) return errno;
    file = FileDescriptor(::openat(version_.get(), name.c_str(), kFlags, 0600));
  }
  if (!file) return errno;
  if (const int error = write_all(file.get(), bytes); error != 0) return error;
  if (const int error = sync_file(file.get()); error != 0) return error;
  return file.close();
}

int CacheFolder::sync_folder(const std::string& folder) const {
  const FileDescriptor descriptor(::openat(version_.get(), folder.c_str(), kOpenSubfolder));
  return descriptor ? sync_file(descriptor.get()) : errno;
}

int CacheFolder::move_into_place(const std::string& temporary, const std::string& name,
                                 std::int64_t bytes) const {
  const std::string folder = folder_of(name);
  if (folder != "." && ::mkdirat(version_.get(), folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno;
  if (::renameat(version_.get(), temporary.c_str(), version_.get(), name.c_str()) != 0) {
    const int error = errno;
    // A request that a network file system sent twice fails the second time, although it was done.
    if (info_of(temporary)) return error;
    const auto moved = info_of(name);
    if (!moved || !moved->is_regular || moved->bytes != bytes) return error;
  }
  // The entry is in place; a power cut now may take it away again, which makes a miss.
  sync_folder(folder);
  return 0;
}

int CacheFolder::publish(const std::string& name, std::span<const std::byte> bytes) const {
  if (!version_) return ENOENT;
  const std::string temporary = "tmp/" + temporary_name();
  int error = write_temporary(temporary, bytes);
  if (error == 0) error = move_into_place(temporary, name, std::ssize(bytes));
  if (error != 0) ::unlinkat(version_.get(), temporary.c_str(), 0);
  return error;
}

int CacheFolder::append(const std::string& name, std::span<const std::byte> bytes,
                        std::int64_t max_bytes) const {
  if (!version_) return ENOENT;
  FileDescriptor file(::openat(version_.get(), name.c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno;
  if (status.st_size >= max_bytes) return EFBIG;
  const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
  if (written < 0) return errno;
  const int error = file.close();
  return written == std::ssize(bytes) ? error : ENOSPC;
}

int CacheFolder::quarantine(const std::string& name, const std::string& new_name) const {
  if (!version_) return ENOENT;
  const std::string moved = "quarantine/" + new_name + "-" + random_hex();
  const auto move = [&] {
    return ::renameat(version_.get(), name.c_str(), version_.get(), moved.c_str()) == 0 ? 0 : errno;
  };
  int error = move();
  if (error == ENOENT && ::mkdirat(version_.get(), "quarantine", 0700) == 0) error = move();
  if (error != 0) return error;
  trim_quarantine();
  return 0;
}

void CacheFolder::trim_quarantine() const {
  std::vector<FileInfo> files = files_in("quarantine");
  if (files.size() <= kQuarantined) return;
  std::ranges::sort(files, {}, &FileInfo::changed_ns);
  for (std::size_t i = 0; i < files.size() - kQuarantined; ++i)
    ::unlinkat(version_.get(), files[i].name.c_str(), 0);
}

int CacheFolder::remove(const FileInfo& file) const {
  const auto now = info_of(file.name);
  if (!now) return ENOENT;
  if (now->inode != file.inode || now->modified_ns != file.modified_ns) return EBUSY;
  return ::unlinkat(version_.get(), file.name.c_str(), 0) == 0 ? 0 : errno;
}

std::int64_t CacheFolder::sweep_temporaries() const {
  std::int64_t swept = 0;
  for (const FileInfo& file : files_in("tmp")) {
    const std::int64_t age_seconds = (now_ns() - file.modified_ns) / kSecondNs;
    if (is_stale_temporary(file.name.substr(file.name.rfind('/') + 1), age_seconds) &&
        remove(file) == 0)
      ++swept;
  }
  return swept;
}

std::vector<std::string> CacheFolder::names_in(const std::string& folder) const {
  const int fd = ::openat(version_.get(), folder.c_str(), kOpenSubfolder | O_NOFOLLOW);
  DIR* stream = fd < 0 ? nullptr : ::fdopendir(fd);
  if (stream == nullptr) {
    if (fd >= 0) ::close(fd);
    return {};
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  std::ranges::sort(names);
  return names;
}

std::optional<FileInfo> CacheFolder::info_of(const std::string& name) const {
  struct stat status {};
  if (::fstatat(version_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return std::nullopt;
  return FileInfo{.name = name,
                  .bytes = status.st_size,
                  .modified_ns = nanoseconds(status.st_mtim),
                  .changed_ns = nanoseconds(status.st_ctim),
                  .inode = status.st_ino,
                  .is_regular = S_ISREG(status.st_mode)};
}

std::vector<FileInfo> CacheFolder::files_in(const std::string& folder) const {
  std::vector<FileInfo> files;
  for (const std::string& name : names_in(folder))
    if (auto info = info_of(folder == "." ? name : folder + "/" + name))
      files.push_back(std::move(*info));
  return files;
}

}  // namespace moejit::cache
