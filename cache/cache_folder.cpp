// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_folder.h"

#include "cache/entry.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace moejit::cache {
namespace {

constexpr std::size_t kQuarantined = 16;
constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

tl::unexpected<Error> unusable(const std::string& root, std::string_view reason,
                               std::string hint = {}) {
  return fail(Stage::kCache, ErrorCode::kCacheUnusable,
              fmt::format("cache folder {}: {}", root, reason), std::move(hint));
}

// Root can do as it likes anyway, so its files are as good as ours.
bool is_trusted_owner(uid_t owner) { return owner == ::geteuid() || owner == 0; }

Result<void> check_trust(const std::string& path, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return unusable(path, errno_text(errno));
  if (!is_trusted_owner(status.st_uid))
    return unusable(
        path,
        fmt::format("it belongs to user {}, wanted user {} (or root)", status.st_uid, ::geteuid()),
        "cached kernels are code: use a folder of your own");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return unusable(path,
                    fmt::format("its mode is {:04o}: other users may write to it, wanted 0700",
                                status.st_mode & 07777U),
                    fmt::format("chmod go-w {}", path));
  return {};
}

// Makes the folder and what is missing above it; 0 or errno.
int make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat status {};
      // Some file systems refuse (EROFS, EACCES) before they notice that the folder is there.
      if (::stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return error;
    }
    if (end == std::string::npos) return 0;
  }
}

Result<FileDescriptor> open_folder(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), kOpenFolder));
  if (!folder) return unusable(path, errno_text(errno));
  MOEJIT_TRY(check_trust(path, folder.get()));
  return folder;
}

std::string random_hex() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    bytes = {};  // O_EXCL still keeps two writers apart
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// <boot>-<pid>-<random>: which files of tmp/ belong to a process that is no more can be told.
std::string temporary_name() {
  static const std::string boot = [] {
    const auto id = read_text_file("/proc/sys/kernel/random/boot_id");
    return id ? id->substr(0, 8) : std::string("00000000");
  }();
  return fmt::format("tmp/{}-{}-{}", boot, ::getpid(), random_hex());
}

// The process may change its working directory later on.
std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::absolute(path, error);
  std::string text = error ? path : result.lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

std::string folder_of(const std::string& name) { return name.substr(0, name.rfind('/')); }

}  // namespace

Result<CacheFolder> CacheFolder::open(const std::string& path) {
  const std::string root = absolute(path);
  const int made = make_folders(root);
  if (made != 0) return unusable(root, fmt::format("it cannot be made: {}", errno_text(made)));
  MOEJIT_TRY_ASSIGN(const FileDescriptor folder, open_folder(root));

  CacheFolder cache;
  cache.root_ = root;
  int error = 0;
  for (const char* name : {"v1", "v1/tmp", "v1/quarantine"})
    if (::mkdirat(folder.get(), name, 0700) != 0 && errno != EEXIST && error == 0) error = errno;
  cache.version_ = FileDescriptor(::openat(folder.get(), "v1", kOpenFolder | O_NOFOLLOW));
  if (!cache.version_)
    return unusable(
        root, fmt::format("it cannot be written to: {}", errno_text(error != 0 ? error : errno)));
  MOEJIT_TRY(check_trust(root + "/v1", cache.version_.get()));
  cache.is_writable_ = error == 0 && ::faccessat(cache.version_.get(), ".", W_OK, AT_EACCESS) == 0;
  return cache;
}

int CacheFolder::read(const std::string& name, std::vector<std::byte>& bytes) const {
  // Not blocking: a pipe under that name must not make us wait.
  const FileDescriptor file(
      ::openat(version_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode) || !is_trusted_owner(status.st_uid)) return EPERM;
  return read_all(file.get(), kLargestFile, bytes);
}

int CacheFolder::write_temporary(const std::string& name, std::span<const std::byte> bytes) const {
  FileDescriptor file(::openat(version_.get(), name.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno;
  if (const int error = write_all(file.get(), bytes); error != 0) return error;
  if (const int error = sync_file(file.get()); error != 0) return error;
  return file.close();
}

int CacheFolder::sync_folder(const std::string& folder) const {
  const FileDescriptor descriptor(::openat(version_.get(), folder.c_str(), kOpenFolder));
  return descriptor ? sync_file(descriptor.get()) : errno;
}

int CacheFolder::move_into_place(const std::string& temporary, const std::string& name) const {
  const std::string folder = folder_of(name);
  if (::mkdirat(version_.get(), folder.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  if (::renameat(version_.get(), temporary.c_str(), version_.get(), name.c_str()) != 0)
    return errno;
  return sync_folder(folder);
}

int CacheFolder::publish(const std::string& name, std::span<const std::byte> bytes) const {
  const std::string temporary = temporary_name();
  int error = write_temporary(temporary, bytes);
  if (error == 0) error = move_into_place(temporary, name);
  if (error != 0) ::unlinkat(version_.get(), temporary.c_str(), 0);
  return error;
}

int CacheFolder::quarantine(const std::string& name, const std::string& new_name) const {
  const std::string moved = "quarantine/" + new_name + "-" + random_hex();
  if (::renameat(version_.get(), name.c_str(), version_.get(), moved.c_str()) != 0) return errno;
  trim_quarantine();
  return 0;
}

void CacheFolder::trim_quarantine() const {
  struct Old {
    std::int64_t seconds, nanoseconds;
    std::string name;
    auto operator<=>(const Old&) const = default;
  };
  std::vector<Old> files;
  for (const std::string& name : names_in("quarantine")) {
    struct stat status {};
    const std::string path = "quarantine/" + name;
    // The time of the status change: when it was moved here.
    if (::fstatat(version_.get(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      files.push_back({status.st_ctim.tv_sec, status.st_ctim.tv_nsec, path});
  }
  if (files.size() <= kQuarantined) return;
  std::ranges::sort(files);
  for (std::size_t i = 0; i < files.size() - kQuarantined; ++i)
    ::unlinkat(version_.get(), files[i].name.c_str(), 0);
}

std::vector<std::string> CacheFolder::names_in(const std::string& folder) const {
  const int fd = ::openat(version_.get(), folder.c_str(), kOpenFolder | O_NOFOLLOW);
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

}  // namespace moejit::cache
