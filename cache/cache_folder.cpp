// SPDX-License-Identifier: Apache-2.0
// Finds, makes and opens the folder. folder_files.cpp handles its files.
#include "cache/cache_folder.h"

#include "cache/network_file_system.h"
#include "cache/trust.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace moejit::cache {
namespace {

constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr const char* kVersion = "v2";
constexpr const char* kOlderVersion = "v1";

tl::unexpected<Error> unusable(const std::string& path, std::string_view reason,
                               std::string hint = {}) {
  return fail(Stage::kCache, ErrorCode::kCacheUnusable,
              fmt::format("cache folder {}: {}", path, reason), std::move(hint));
}

// Returns whether the error is the machine's trouble, not a fault of the folder that was chosen.
bool is_fault(int error) {
  constexpr std::array kFaults = {EIO,       ESTALE, EBUSY,  EMFILE,    ENFILE,   ENOMEM,
                                  EINTR,     ENOSPC, EDQUOT, ENOLCK,    EXDEV,    EAGAIN,
                                  EREMOTEIO, ENXIO,  ENODEV, ETIMEDOUT, ENOTCONN, EHOSTDOWN};
  return std::ranges::count(kFaults, error) > 0;
}

Result<void> check_trust(const std::string& root, const std::string& path,
                         const struct stat& status) {
  if (Distrust distrust = distrust_of_cached(status, root); !distrust.reason.empty())
    return unusable(path, distrust.reason, std::move(distrust.hint));
  return {};
}

// Makes the folder and its missing parents. Returns 0 or errno.
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

// Returns what make_folders() would return, as far as permissions tell.
int would_make_folders(const std::string& path) {
  const std::filesystem::path folder(path);
  for (auto above = folder.parent_path(); !above.empty(); above = above.parent_path()) {
    if (::faccessat(AT_FDCWD, above.c_str(), W_OK | X_OK, AT_EACCESS) == 0) {
      struct stat status {};
      return ::stat(above.c_str(), &status) == 0 && !S_ISDIR(status.st_mode) ? ENOTDIR : 0;
    }
    if (errno != ENOENT || above == above.root_path()) return errno;
  }
  return ENOENT;
}

// Returns the network file system of the folder, or of its nearest parent that exists.
std::string_view network_of(std::string path) {
  while (true) {
    const FileDescriptor folder(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (folder) return network_file_system_of(folder.get());
    const std::size_t slash = path.rfind('/');
    if (errno != ENOENT || slash == std::string::npos || path == "/") return {};
    path.resize(std::max<std::size_t>(slash, 1));
  }
}

// Returns the path as an absolute one, since the process may change its working directory later.
std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::absolute(path, error);
  std::string text = error ? path : result.lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

}  // namespace

Result<CacheFolder> CacheFolder::open(const std::string& path, bool writes_to_network) {
  return open(path, writes_to_network, Missing::kMake);
}

Result<CacheFolder> CacheFolder::look(const std::string& path, bool writes_to_network) {
  return open(path, writes_to_network, Missing::kLeave);
}

Result<CacheFolder> CacheFolder::open(const std::string& path, bool writes_to_network,
                                      Missing missing) {
  CacheFolder folder;
  folder.root_ = absolute(path);
  MOEJIT_TRY(folder.make_and_open(writes_to_network, missing));
  return folder;
}

// Returns errors for what the user has to change, and sets fault_ for the rest.
Result<void> CacheFolder::make_and_open(bool writes_to_network, Missing missing) {
  const bool makes = missing == Missing::kMake;
  if (!writes_to_network) network_ = network_of(root_);
  const bool may_write = network_.empty();
  const auto failed = [this](int error, std::string_view what) -> Result<void> {
    if (!is_fault(error)) return unusable(root_, fmt::format("{}{}", what, errno_text(error)));
    fault_ = error;
    version_ = {};
    is_writable_ = false;
    return {};
  };
  FileDescriptor root(::open(root_.c_str(), kOpenFolder));
  if (!root && errno == ENOENT) {
    if (!may_write) return {};  // there is nothing to read
    if (const int error = makes ? make_folders(root_) : would_make_folders(root_); error != 0)
      return failed(error, "it cannot be made: ");
    is_writable_ = true;
    if (!makes) return {};
    root = FileDescriptor(::open(root_.c_str(), kOpenFolder));
  }
  struct stat status {};
  if (!root || ::fstat(root.get(), &status) != 0) return failed(errno, "");
  MOEJIT_TRY(check_trust(root_, root_, status));

  constexpr int kOpenVersion = kOpenFolder | O_NOFOLLOW;
  version_ = FileDescriptor(::openat(root.get(), kVersion, kOpenVersion));
  if (!version_ && errno == ENOENT) {
    if (!may_write) return {};
    const int made = makes ? ::mkdirat(root.get(), kVersion, 0700)
                           : ::faccessat(root.get(), ".", W_OK | X_OK, AT_EACCESS);
    if (made != 0 && errno != EEXIST) {
      const int error = errno;
      // An earlier version made this cache, and we may only read it: nothing in it is for us.
      if (!is_fault(error) && ::faccessat(root.get(), kOlderVersion, F_OK, 0) == 0) return {};
      return failed(error, "it cannot be written to: ");
    }
    is_writable_ = true;
    if (!makes) return {};
    version_ = FileDescriptor(::openat(root.get(), kVersion, kOpenVersion));
    // A later call that needs these folders tries again if they cannot be made now.
    if (version_)
      for (const char* name : {"tmp", "quarantine"}) ::mkdirat(version_.get(), name, 0700);
  }
  if (!version_ && (errno == ENOTDIR || errno == ELOOP))
    return unusable(root_ + "/" + kVersion, errno_text(errno), "move away what is there");
  if (!version_) return failed(errno, "");
  if (::fstat(version_.get(), &status) != 0) return failed(errno, "");
  MOEJIT_TRY(check_trust(root_, root_ + "/" + kVersion, status));
  is_writable_ = may_write && ::faccessat(version_.get(), ".", W_OK, AT_EACCESS) == 0;
  return {};
}

std::string CacheFolder::path_of(const std::string& name) const {
  return root_ + "/" + kVersion + "/" + name;
}

void CacheFolder::remove_older() const {
  std::error_code ignored;
  std::filesystem::remove_all(root_ + "/" + kOlderVersion, ignored);
}

}  // namespace moejit::cache
