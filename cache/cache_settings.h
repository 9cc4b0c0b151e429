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

// How large a cache may grow before the entries that were used longest ago are evicted.
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

// What a program decides itself; the rest is the environment's.
struct CacheChoices {
  std::optional<std::int64_t> max_bytes, max_files;  // at least 1
  std::optional<bool> writes_to_network;
};

// What is chosen, else as MOEJIT_CACHE_MAX_BYTES, MOEJIT_CACHE_MAX_FILES and MOEJIT_CACHE_NETWORK
// say, else the defaults. A value of a variable that makes no sense is a problem and leaves the
// default: no cache setting of the environment keeps a program from running.
CacheSettings settings_of_environment(const CacheChoices& choices = {});

// "4294967296", "4G", "512 MiB"; powers of 1024; "none" is kUnlimited. None where the text is
// something else, is 0, or is too large.
std::optional<std::int64_t> parse_limit(std::string_view text);

}  // namespace moejit::cache
