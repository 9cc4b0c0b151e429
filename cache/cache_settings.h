// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Limits of a cache's size, above which the least recently used entries are evicted.
struct CacheLimits {
  std::int64_t max_bytes = std::int64_t{4} << 30;  // sum of the sizes of all entries
  std::int64_t max_files = 65536;                  // entries; each takes one inode
  bool operator==(const CacheLimits&) const = default;
};

struct CacheSettings {
  CacheLimits limits;
  bool writes_to_network = false;     // false: a cache on a network file system is only read
  std::vector<std::string> problems;  // sentences about values that could not be used
};

// Settings that a program chooses itself; the environment decides the others.
struct CacheChoices {
  std::optional<std::int64_t> max_bytes, max_files;  // at least 1
  std::optional<bool> writes_to_network;
};

// Returns what is chosen, else what MOEJIT_CACHE_MAX_BYTES, MOEJIT_CACHE_MAX_FILES and
// MOEJIT_CACHE_NETWORK say, else the defaults. A variable with a senseless value adds to `problems`
// and leaves the default: no cache setting of the environment keeps a program from running.
CacheSettings settings_of_environment(const CacheChoices& choices = {});

// Parses "4294967296", "4G" or "512 MiB" (powers of 1024); "none" is kUnlimited. Returns none if
// the text is anything else, is 0, or is too large.
std::optional<std::int64_t> parse_limit(std::string_view text);

}  // namespace moejit::cache
