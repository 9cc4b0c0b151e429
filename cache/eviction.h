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
  // Where too much is left since it was used just now: when the next entry may go; else 0.
  std::int64_t next_ns = 0;
};

bool exceeds(std::int64_t files, std::int64_t bytes, const CacheLimits& limits);

// Looks at all entries and, where there is more than `limits`, removes those that were used longest
// ago until no more than `goal` is left. Never one that was published or used in the last 10
// minutes: somebody needs it just now. An entry that is used or replaced meanwhile stays.
Eviction evict(const CacheFolder& folder, const CacheLimits& limits, const CacheLimits& goal);

// Every file whose name is that of an entry, in the order of the keys. The only place that looks
// through the whole folder.
std::vector<FileInfo> entry_files(const CacheFolder& folder);

}  // namespace moejit::cache
