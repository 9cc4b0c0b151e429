// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/stat.h>

namespace moejit::cache {

// Says why a file or folder with cached kernels, or with keys, is not to be trusted. The reason is
// that it belongs to somebody other than this user or root, or that others may write to it. A
// cached kernel is code with the rights of its user.
struct Distrust {
  std::string reason;  // empty: nothing is wrong with it
  std::string hint;
};
Distrust distrust_of(const struct stat& status, const std::string& path);
// Returns distrust_of() for a file or folder of the cache at `root`, with a hint that mends the
// whole cache.
Distrust distrust_of_cached(const struct stat& status, const std::string& root);

// Says why somebody else could put another file at this path. That is the case if a folder on the
// way to it, through all links, belongs to somebody else. It is also the case if others may write
// to such a folder and it has no sticky bit. Says nothing about the file itself, nor about what is
// not there.
Distrust distrust_of_way_to(const std::string& path);

// Returns whether files of this owner count as ours. Root can do anything anyway, so its files do.
bool is_trusted_owner(uid_t owner);

}  // namespace moejit::cache
