// SPDX-License-Identifier: Apache-2.0
// Keeps a cache small and its numbers right. No hit runs any of this.
#include "cache/eviction.h"
#include "cache/kernel_cache.h"

#include <cerrno>

namespace moejit::cache {
namespace {

constexpr std::int64_t kMostRecords = 1024;  // more make reading the stats slow
// A stats file this large, from processes that published nothing, is rewritten without looking at
// the entries.
constexpr std::int64_t kLargestStats = 8 * kMostRecords * kStatsRecordBytes;

// Returns limits somewhat lower, so that not every publication has to scan the folder.
CacheLimits low_water(const CacheLimits& limits) {
  return {.max_bytes = limits.max_bytes - limits.max_bytes / 10,
          .max_files = limits.max_files - limits.max_files / 10};
}

}  // namespace

// Adds what was counted since the last call. A thread that finds another one writing the stats
// leaves that to a later call. What it appends while trim() replaces the file would be lost.
void KernelCache::flush_counts() {
  const std::unique_lock lock(stats_mutex_, std::try_to_lock);
  if (lock) append_counts();
}

void KernelCache::append_counts() {
  CountTable change;
  for (std::size_t i = 0; i < kCounts; ++i) {
    const std::int64_t now = counts_[i].load(std::memory_order_relaxed);
    change.values[i] = now - flushed_[i].exchange(now, std::memory_order_relaxed);
  }
  if (change == CountTable{}) return;
  const std::vector<std::byte> record = encode_stats_record(change, false);
  int error = folder_.append("stats", record, kLargestStats);
  // A file of somebody else must not take these counts, so it loses the name.
  if (error == EPERM && folder_.quarantine("stats", "stats") == 0)
    error = folder_.append("stats", record, kLargestStats);
  if (error != EFBIG) return;
  SummedStats stats = read_stats(folder_);
  stats.total += change;
  folder_.publish("stats", encode_stats_record(stats.total, stats.is_size_known));
}

void KernelCache::keep_within_limits() {
  flush_counts();
  const SummedStats stats = read_stats(folder_);
  const bool is_too_large =
      exceeds(stats.total[Count::kFiles], stats.total[Count::kBytes], settings_.limits);
  if (stats.is_size_known && stats.records <= kMostRecords && !is_too_large) return;
  if (stats.is_size_known && is_too_large && now_ns() < next_eviction_ns_.load()) return;
  trim(low_water(settings_.limits));
}

Collected KernelCache::trim(const CacheLimits& goal) {
  const std::unique_lock lock(stats_mutex_, std::try_to_lock);
  if (!lock) return {};
  const Eviction eviction = evict(folder_, settings_.limits, goal);
  next_eviction_ns_ = eviction.next_ns;
  add(Count::kEvicted, eviction.evicted_files);
  append_counts();
  SummedStats stats = read_stats(folder_);
  if (stats.bad_records > 0 && folder_.quarantine("stats", "stats") == 0)
    ++stats.total[Count::kCorrupt];
  stats.total[Count::kFiles] = eviction.files;
  stats.total[Count::kBytes] = eviction.bytes;
  folder_.publish("stats", encode_stats_record(stats.total, true));
  return {.files = eviction.files,
          .bytes = eviction.bytes,
          .evicted_files = eviction.evicted_files,
          .evicted_bytes = eviction.evicted_bytes,
          .swept = 0,
          .is_within_limits = !exceeds(eviction.files, eviction.bytes, settings_.limits)};
}

Collected KernelCache::collect_garbage() {
  const std::int64_t swept = folder_.sweep_temporaries();
  add(Count::kSwept, swept);
  Collected collected = trim(settings_.limits);
  collected.swept = swept;
  return collected;
}

std::int64_t KernelCache::clear() {
  std::int64_t removed = 0;
  for (const FileInfo& file : entry_files(folder_)) removed += folder_.remove(file) == 0 ? 1 : 0;
  for (const char* folder : {"tmp", "quarantine", "compilers"})
    for (const FileInfo& file : folder_.files_in(folder)) folder_.remove(file);
  // Whatever else has the name of the folder is in its way.
  const auto is_in_the_way = [](const FileInfo& file) {
    const bool is_name_of_folder = file.name.size() == 2 || file.name == "tmp" ||
                                   file.name == "quarantine" || file.name == "compilers";
    return is_name_of_folder && !file.is_folder;
  };
  for (const FileInfo& file : folder_.files_in("."))
    if (file.name == "stats" || is_in_the_way(file)) folder_.remove(file);
  folder_.remove_older();
  return removed;
}

CacheStatistics KernelCache::statistics() const {
  CacheStatistics statistics{.counted = read_stats(folder_)};
  for (const FileInfo& file : entry_files(folder_)) {
    ++statistics.files;
    statistics.bytes += file.bytes;
  }
  for (const FileInfo& file : folder_.files_in("quarantine")) {
    ++statistics.quarantined_files;
    statistics.quarantined_bytes += file.bytes;
  }
  for (const FileInfo& file : folder_.files_in("tmp")) {
    ++statistics.temporary_files;
    statistics.temporary_bytes += file.bytes;
  }
  return statistics;
}

}  // namespace moejit::cache
