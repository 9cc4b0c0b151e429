// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/cache_folder.h"
#include "cache/entry.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

// Gets each warning once, as one sentence. May be called from any thread that uses the cache.
using WarningSink = std::function<void(std::string_view)>;

struct CacheCounters {
  std::int64_t hits = 0;
  std::int64_t misses = 0;     // also counts the corrupt ones
  std::int64_t corrupt = 0;    // entries that failed verification
  std::int64_t published = 0;  // entries written
  std::int64_t failed_reads = 0;
  std::int64_t failed_writes = 0;
};

// One file of a cache, verified.
struct EntryInfo {
  Digest key;
  std::string path;
  std::int64_t file_bytes = 0;
  std::int64_t payload_bytes = 0;
  std::string metadata;
  std::string problem;  // empty: every byte is as it was written
};

// Bytes under digests, in one file each. Every byte is verified before a caller sees it: what
// fails is moved aside, counted, warned about, and is a miss. Trouble with the disk is never an
// error of get() or put(): it makes misses, and one warning per cause. Safe among threads and
// processes.
class KernelCache {
 public:
  // Error kCacheUnusable: the folder cannot be made, opened or trusted; or it is read-only and
  // holds no cache.
  static Result<std::unique_ptr<KernelCache>> open(const std::string& folder,
                                                   WarningSink warn = {});

  std::optional<Entry> get(const Digest& key);

  // Publishes an entry, replacing what is there; returns whether it did. The caller goes on with
  // its own bytes: on some file systems a new file is not seen at once.
  bool put(const Digest& key, std::string_view metadata, std::span<const std::byte> payload);

  // Moves an entry aside that verified but is of no use to the caller. Counts as corrupt.
  void discard(const Digest& key, std::string_view reason);

  // All entries in the order of their keys, each read and verified; nothing is changed.
  std::vector<EntryInfo> list() const;

  const std::string& folder() const { return folder_.root(); }
  // False: opened for reading, or writing was given up after a full disk or the like.
  bool is_writable() const { return is_writable_.load(std::memory_order_relaxed); }
  CacheCounters counters() const;

 private:
  KernelCache(CacheFolder folder, WarningSink warn);
  void warn_once(const std::string& cause, const std::string& message);
  void report_failed_write(int error);

  CacheFolder folder_;
  WarningSink warn_;
  std::atomic<bool> is_writable_;
  std::atomic<std::int64_t> hits_{0}, misses_{0}, corrupt_{0}, published_{0}, failed_reads_{0},
      failed_writes_{0};
  std::mutex warned_mutex_;
  std::set<std::string> warned_;
};

}  // namespace moejit::cache
