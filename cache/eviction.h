// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/cache_folder.h"
#include "cache/cache_settings.h"

#include <cstdint>
#include <vector>

namespace moejit::cache {

struct Eviction {
  std::int64_t files = 0;  // entries that are left, and the sum of their sizes
  std::int64_t bytes = 0;
  std::int64_t evicted_files = 0;
  std::int64_t evicted_bytes = 0;
  // If what was used just now is still too much, the time when the next entry may go; else 0.
  std::int64_t next_ns = 0;
};

bool exceeds(std::int64_t files, std::int64_t bytes, const CacheLimits& limits);

// Looks at all entries and, if there is more than `limits`, removes the least recently used until
// no more than `goal` is left. Keeps entries that were published or used in the last 10 minutes,
// since somebody needs them now. Keeps entries that are used or replaced meanwhile, too.
Eviction evict(const CacheFolder& folder, const CacheLimits& limits, const CacheLimits& goal);

// Returns every file that has the name of an entry, in the order of the keys. This is the only
// function that looks through the whole folder.
std::vector<FileInfo> entry_files(const CacheFolder& folder);

}  // namespace moejit::cache
