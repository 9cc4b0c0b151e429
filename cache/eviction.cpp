// SPDX-License-Identifier: Apache-2.0
#include "cache/eviction.h"

#include "compiler/support/digest.h"

#include <algorithm>
#include <cerrno>
#include <string>

namespace moejit::cache {
namespace {

constexpr std::int64_t kMinute = 60'000'000'000;
constexpr std::int64_t kYoung = 10 * kMinute;
// Times in the future come from clocks that differ; a time more than a day ahead is nonsense.
constexpr std::int64_t kSkew = 24 * 60 * kMinute;

}  // namespace

bool exceeds(std::int64_t files, std::int64_t bytes, const CacheLimits& limits) {
  return files > limits.max_files || bytes > limits.max_bytes;
}

std::vector<FileInfo> entry_files(const CacheFolder& folder) {
  std::vector<FileInfo> entries;
  for (const std::string& prefix : folder.names_in(".")) {
    if (prefix.size() != 2) continue;
    for (FileInfo& file : folder.files_in(prefix)) {
      std::string hex = file.name;
      hex.erase(2, 1);
      if (Digest::from_hex(hex)) entries.push_back(std::move(file));
    }
  }
  return entries;
}

Eviction evict(const CacheFolder& folder, const CacheLimits& limits, const CacheLimits& goal) {
  std::vector<FileInfo> entries = entry_files(folder);
  Eviction result;
  result.files = std::ssize(entries);
  for (const FileInfo& entry : entries) result.bytes += entry.bytes;
  if (!exceeds(result.files, result.bytes, limits)) return result;

  const std::int64_t now = now_ns();
  const auto last_use = [now](const FileInfo& entry) {
    return entry.modified_ns > now + kSkew ? 0 : entry.modified_ns;
  };
  std::ranges::sort(entries, {}, last_use);
  for (const FileInfo& entry : entries) {
    if (!exceeds(result.files, result.bytes, goal)) break;
    if (last_use(entry) > now - kYoung) {
      result.next_ns = entry.modified_ns + kYoung;
      break;
    }
    const int error = folder.remove(entry);
    if (error != 0 && error != ENOENT) continue;
    --result.files;
    result.bytes -= entry.bytes;
    if (error != 0) continue;  // another process was faster
    ++result.evicted_files;
    result.evicted_bytes += entry.bytes;
  }
  return result;
}

}  // namespace moejit::cache
