// SPDX-License-Identifier: Apache-2.0
#include "cache/trust.h"

#include <deque>
#include <filesystem>
#include <fmt/core.h>
#include <system_error>
#include <unistd.h>

namespace moejit::cache {
namespace {

constexpr int kMostLinks = 40;  // as many as the kernel follows

bool is_for_others(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

}  // namespace

bool is_trusted_owner(uid_t owner) { return owner == ::geteuid() || owner == 0; }

Distrust distrust_of(const struct stat& status, const std::string& path) {
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!is_trusted_owner(status.st_uid))
    return {
        fmt::format("it belongs to user {}, wanted user {} (or root)", status.st_uid, ::geteuid()),
        fmt::format("cached kernels are code: use a {} of your own",
                    is_folder ? "folder" : "file")};
  if (is_for_others(status))
    return {fmt::format("its mode is {:04o}: other users may write to it, wanted {}",
                        status.st_mode & 07777U, is_folder ? "0700" : "0644"),
            fmt::format("chmod go-w {}", path)};
  return {};
}

Distrust distrust_of_cached(const struct stat& status, const std::string& root) {
  Distrust distrust = distrust_of(status, root);
  if (!distrust.reason.empty() && is_trusted_owner(status.st_uid))
    distrust.hint = fmt::format(
        "chmod -R go-w {}, and moejit cache clear if others may have written there", root);
  return distrust;
}

Distrust distrust_of_way_to(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).relative_path();
  std::deque<fs::path> ahead(whole.begin(), whole.end());
  fs::path folder = "/";
  for (int links = 0; !error && !ahead.empty() && links <= kMostLinks;) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) return {};
    Distrust distrust = distrust_of(status, folder.string());
    // Nobody can replace the files of others in a folder with the sticky bit.
    const bool is_kept = is_trusted_owner(status.st_uid) && (status.st_mode & S_ISVTX) != 0;
    if (!distrust.reason.empty() && !is_kept)
      return {fmt::format("the folder {} on the way to it: {}", folder.string(), distrust.reason),
              std::move(distrust.hint)};
    const fs::path name = std::move(ahead.front());
    ahead.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      folder = folder.parent_path();
      continue;
    }
    const fs::path next = folder / name;
    if (::lstat(next.c_str(), &status) != 0) return {};
    if (!S_ISLNK(status.st_mode)) {
      folder = next;
      continue;
    }
    if (!is_trusted_owner(status.st_uid))
      return {fmt::format("the link {} on the way to it belongs to user {}, wanted user {} (or "
                          "root)",
                          next.string(), status.st_uid, ::geteuid()),
              "name a path without it"};
    ++links;
    const fs::path target = fs::read_symlink(next, error);
    if (target.is_absolute()) folder = "/";
    const fs::path rest = target.relative_path();
    ahead.insert(ahead.begin(), rest.begin(), rest.end());
  }
  return {};
}

}  // namespace moejit::cache
