// SPDX-License-Identifier: Apache-2.0
// Handles the files of a cache folder. Every call may fail at any time, on a file system that is
// slow or lies. The caller gets the errno and goes on without the file.
#include "cache/cache_folder.h"
#include "cache/entry.h"
#include "cache/trust.h"
#include "compiler/support/temporary_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace moejit::cache {
namespace {

constexpr std::size_t kQuarantined = 16;
constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kHourNs = 3600 * kSecondNs;
constexpr int kOpenSubfolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

// Marks the open file as used just now. It takes a descriptor, so that no other file can be meant,
// and writes at most hourly, so that reading causes no writes. The access time would not do: many
// file systems are mounted without it.
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

std::string base_of(const std::string& name) { return name.substr(name.rfind('/') + 1); }

// Returns 0 if the open file is one of the cache, else errno; EPERM if it is not to be believed.
int check_file(int fd, const std::string& root, struct stat& status) {
  if (::fstat(fd, &status) != 0) return errno;
  const bool is_ours = S_ISREG(status.st_mode) && distrust_of_cached(status, root).reason.empty();
  return is_ours ? 0 : EPERM;
}

// Returns errno after opening failed; EPERM if what has the name is a link, pipe, socket, or the
// like.
int error_of_open() {
  return errno == ELOOP || errno == ENXIO || errno == ENOTDIR || errno == EISDIR ? EPERM : errno;
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return nanoseconds(now);
}

// Opens a folder below v2 whose files may be believed. Returns 0 or errno; EPERM if it is none.
int CacheFolder::open_folder(const std::string& folder, FileDescriptor& opened) const {
  opened = FileDescriptor(::openat(version_.get(), folder.c_str(), kOpenSubfolder | O_NOFOLLOW));
  if (!opened) return error_of_open();
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) return errno;
  return distrust_of_cached(status, root_).reason.empty() ? 0 : EPERM;
}

int CacheFolder::read(const std::string& name, std::vector<std::byte>& bytes,
                      bool marks_use) const {
  if (!version_) return ENOENT;
  FileDescriptor folder;
  if (const int error = open_folder(folder_of(name), folder); error != 0) return error;
  // Non-blocking: a pipe of that name must not make us wait.
  const FileDescriptor file(::openat(folder.get(), base_of(name).c_str(),
                                     O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return error_of_open();
  struct stat status {};
  if (const int error = check_file(file.get(), root_, status); error != 0) return error;
  if (status.st_size > kLargestFile) return EFBIG;
  bytes.resize(static_cast<std::size_t>(status.st_size));
  if (const int error = read_whole(file.get(), bytes); error != 0) return error;
  if (marks_use) mark_use(file.get(), status);
  return 0;
}

Refusal CacheFolder::why_refused(const std::string& name) const {
  struct stat status {};
  const auto is_there = [&](const std::string& part) {
    return ::fstatat(version_.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  };
  const std::string folder = folder_of(name);
  for (const std::string& part : {folder, name}) {
    if (!is_there(part)) continue;
    const bool is_right = part == name ? S_ISREG(status.st_mode) : S_ISDIR(status.st_mode);
    if (!is_right)
      return {.name = part,
              .reason = part == name ? "it is no plain file" : "it is no folder",
              .hint = {},
              .is_obstacle = true};
    if (Distrust distrust = distrust_of_cached(status, root_); !distrust.reason.empty())
      return {.name = part, .reason = distrust.reason, .hint = std::move(distrust.hint)};
  }
  return {};
}

int CacheFolder::write_temporary(const std::string& name, std::span<const std::byte> bytes) const {
  FileDescriptor folder;
  int opened = open_folder("tmp", folder);
  if (opened == ENOENT) {  // somebody removed the folder
    if (::mkdirat(version_.get(), "tmp", 0700) != 0) return errno;
    opened = open_folder("tmp", folder);
  }
  if (opened != 0) return opened;
  FileDescriptor file(::openat(folder.get(), base_of(name).c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
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
  FileDescriptor opened;
  if (const int error = open_folder(folder, opened); error != 0) return error;
  if (::renameat(version_.get(), temporary.c_str(), opened.get(), base_of(name).c_str()) != 0) {
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

// Moves away what is of the wrong kind where a file or its folder belongs. Returns whether it did.
bool CacheFolder::clears_the_way(const std::string& name) const {
  const Refusal why = why_refused(name);
  return why.is_obstacle && quarantine(why.name, base_of(why.name)) == 0;
}

int CacheFolder::publish(const std::string& name, std::span<const std::byte> bytes) const {
  if (!version_) return ENOENT;
  const auto attempt = [&] {
    const std::string temporary = "tmp/" + temporary_name();
    int error = write_temporary(temporary, bytes);
    if (error == 0) error = move_into_place(temporary, name, std::ssize(bytes));
    if (error != 0) ::unlinkat(version_.get(), temporary.c_str(), 0);
    return error;
  };
  const int error = attempt();
  if (error == 0) return 0;
  const bool is_clear = clears_the_way("tmp/new");
  return clears_the_way(name) || is_clear ? attempt() : error;
}

int CacheFolder::append(const std::string& name, std::span<const std::byte> bytes,
                        std::int64_t max_bytes) const {
  if (!version_) return ENOENT;
  // Non-blocking: a pipe of that name must not make us wait.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  FileDescriptor file(::openat(version_.get(), name.c_str(), kFlags, 0600));
  if (!file) return error_of_open();
  struct stat status {};
  if (const int error = check_file(file.get(), root_, status); error != 0) return error;
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
  if (error == ENOTDIR) ::unlinkat(version_.get(), "quarantine", 0);
  if ((error == ENOENT || error == ENOTDIR) && ::mkdirat(version_.get(), "quarantine", 0700) == 0)
    error = move();
  if (error != 0) return error;
  trim_quarantine();
  return 0;
}

void CacheFolder::trim_quarantine() const {
  std::vector<FileInfo> files = files_in("quarantine");
  if (files.size() <= kQuarantined) return;
  std::ranges::sort(files, {}, &FileInfo::changed_ns);
  for (std::size_t i = 0; i < files.size() - kQuarantined; ++i) remove(files[i]);
}

int CacheFolder::remove(const FileInfo& file) const {
  const auto now = info_of(file.name);
  if (!now) return ENOENT;
  if (now->inode != file.inode || now->modified_ns != file.modified_ns) return EBUSY;
  if (::unlinkat(version_.get(), file.name.c_str(), 0) == 0) return 0;
  if (errno != EISDIR) return errno;
  std::error_code error;
  std::filesystem::remove_all(path_of(file.name), error);
  return error.value();
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
                  .is_regular = S_ISREG(status.st_mode),
                  .is_folder = S_ISDIR(status.st_mode)};
}

std::vector<FileInfo> CacheFolder::files_in(const std::string& folder) const {
  std::vector<FileInfo> files;
  for (const std::string& name : names_in(folder))
    if (auto info = info_of(folder == "." ? name : folder + "/" + name))
      files.push_back(std::move(*info));
  return files;
}

}  // namespace moejit::cache
