// SPDX-License-Identifier: Apache-2.0
#include "cache/trust.h"

#include <fmt/core.h>
#include <unistd.h>

namespace moejit::cache {

bool is_trusted_owner(uid_t owner) { return owner == ::geteuid() || owner == 0; }

Distrust distrust_of(const struct stat& status, const std::string& path) {
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!is_trusted_owner(status.st_uid))
    return {
        fmt::format("it belongs to user {}, wanted user {} (or root)", status.st_uid, ::geteuid()),
        fmt::format("cached kernels are code: use a {} of your own",
                    is_folder ? "folder" : "file")};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {fmt::format("its mode is {:04o}: other users may write to it, wanted {}",
                        status.st_mode & 07777U, is_folder ? "0700" : "0644"),
            fmt::format("chmod go-w {}", path)};
  return {};
}

}  // namespace moejit::cache
