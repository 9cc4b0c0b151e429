// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/stat.h>

namespace moejit::cache {

// Says why a file or folder with cached kernels, or with keys, is not to be trusted: it belongs to
// somebody other than this user or root, or others may write to it. A cached kernel is code with
// the rights of its user.
struct Distrust {
  std::string reason;  // empty: nothing is wrong with it
  std::string hint;
};
Distrust distrust_of(const struct stat& status, const std::string& path);

// Returns whether files of this owner count as ours. Root can do anything anyway, so its files do.
bool is_trusted_owner(uid_t owner);

}  // namespace moejit::cache
