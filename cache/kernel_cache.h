// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/cache_folder.h"
#include "cache/cache_settings.h"
#include "cache/cache_stats.h"
#include "cache/entry.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"
#include "compiler/support/fork.h"

#include <array>
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

// Gets each warning once, as one sentence. Any thread that uses the cache may call it.
using WarningSink = std::function<void(std::string_view)>;

struct CacheCounters {
  std::int64_t hits = 0;
  std::int64_t misses = 0;     // kernels that were looked for and not found; corrupt ones, too
  std::int64_t corrupt = 0;    // entries that failed verification
  std::int64_t published = 0;  // entries written
  std::int64_t failed_reads = 0;
  std::int64_t failed_writes = 0;
  std::int64_t evicted = 0;           // entries removed because the cache was too large
  std::int64_t nondeterministic = 0;  // publications whose bytes differ from the entry's
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

// The result of garbage collection: what it removed, and what is left.
struct Collected {
  std::int64_t files = 0, bytes = 0;  // entries that are left
  std::int64_t evicted_files = 0, evicted_bytes = 0;
  std::int64_t swept = 0;        // temporary files of dead processes
  bool is_within_limits = true;  // false: the excess was used in the last 10 minutes
};

// The current content of the folder, and the sums counted by all processes that used it.
struct CacheStatistics {
  SummedStats counted;
  std::int64_t files = 0, bytes = 0;
  std::int64_t quarantined_files = 0, quarantined_bytes = 0;
  std::int64_t temporary_files = 0, temporary_bytes = 0;
};

// Stores bytes under digests, in one file each. Every byte is verified before a caller sees it: an
// entry that fails is moved aside, counted, warned about, and is a miss. Trouble with the disk is
// never an error of get() or put(): it causes misses, and one warning per cause. Safe for threads
// and processes.
class KernelCache {
 public:
  // Opens a cache. Error kCacheUnusable: the folder cannot be made, opened or trusted, or it is
  // read-only and holds no cache. If the file system fails (docs/cache.md) the cache is empty,
  // stores nothing and warns once. Looks at no file but the folder's own.
  static Result<std::unique_ptr<KernelCache>> open(
      const std::string& folder, WarningSink warn = {},
      const CacheSettings& settings = settings_of_environment());
  ~KernelCache();  // adds what was counted to the folder's stats
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // Returns the entry, and counts a hit, or a miss if there is none.
  std::optional<Entry> get(const Digest& key);
  // Returns the entry as get() does, but counts no miss. A caller that may ask for a kernel more
  // than once or under several keys calls count_miss() when no key has it.
  std::optional<Entry> find(const Digest& key);
  void count_miss() { add(Count::kMisses); }

  // Publishes an entry and replaces what is there unless that has the same payload; returns whether
  // the folder has it. The caller goes on with its own bytes, since on some file systems a new file
  // is not seen at once. If the cache has outgrown its limits, the least recently used entries are
  // evicted.
  bool put(const Digest& key, std::string_view metadata, std::span<const std::byte> payload);

  // Counts one nondeterministic compile as put() does, for a caller that compared the bytes itself
  // and keeps the entry.
  void count_nondeterministic() { add(Count::kNondeterministic); }

  // Moves aside an entry that verified but is of no use to the caller. Counts it as corrupt.
  void discard(const Digest& key, std::string_view reason);

  // Records that the folder may hold entries of a compiler, in the caller's words, at most 4096
  // bytes. Does nothing if that is recorded already, or cannot be written.
  void add_compiler(std::string_view text);
  // Returns what was recorded, each text once and verified, in an order that the texts alone
  // decide. It is advice: entries that were copied, or written by an earlier version, may have no
  // record.
  std::vector<std::string> compilers() const;

  // Returns all entries in the order of their keys, each read and verified; nothing is changed.
  std::vector<EntryInfo> list() const;
  // Returns the keys of all entries, sorted; no file is opened.
  std::vector<Digest> keys() const;
  // Returns the keys of the entries that were moved to quarantine, sorted.
  std::vector<Digest> quarantined() const;
  // Returns one entry, read and verified; none if there is no such file.
  std::optional<EntryInfo> inspect(const Digest& key) const;

  // Evicts down to the limits and sweeps, now.
  Collected collect_garbage();
  // Removes all entries, quarantined and temporary files, records, the stats, and what earlier
  // versions of moejit left. Returns how many entries.
  std::int64_t clear();
  CacheStatistics statistics() const;

  const std::string& folder() const { return folder_.root(); }
  // Returns false if it was opened for reading, or if writing was given up, for example after a
  // full disk.
  bool is_writable() const { return is_writable_.load(std::memory_order_relaxed); }
  // Returns why put() cannot write, or could not the last time it failed, as a phrase; empty if it
  // can.
  std::string write_problem() const;
  CacheCounters counters() const;
  const CacheLimits& limits() const { return settings_.limits; }
  // Returns why the file system cannot be used at all; empty if it can.
  std::string fault() const;

 private:
  KernelCache(CacheFolder folder, WarningSink warn, const CacheSettings& settings);
  void add(Count count, std::int64_t number = 1);
  std::int64_t counted(Count count) const;
  void warn_read_only();
  void flush_counts();
  void append_counts();
  void keep_within_limits();
  Collected trim(const CacheLimits& goal);
  void warn_once(const std::string& cause, const std::string& message);
  void report_failed_write(int error, const std::string& name = {});
  void set_aside(const std::string& name, const std::string& new_name, std::string_view reason);
  void refuse(const std::string& name);
  std::string reason_of(int error, const std::string& name) const;

  CacheFolder folder_;
  WarningSink warn_;
  std::atomic<bool> is_writable_;
  const CacheSettings settings_;
  std::array<std::atomic<std::int64_t>, kCounts> counts_{};   // of this process
  std::array<std::atomic<std::int64_t>, kCounts> flushed_{};  // those already in the stats
  std::atomic<bool> has_swept_{false};
  std::atomic<std::int64_t> next_eviction_ns_{0};
  std::mutex stats_mutex_;  // of evictions too; only tried: a child of fork() may inherit it locked
  mutable ForkMutex warned_mutex_;
  std::string write_error_;  // of the last put() that failed; guarded as warned_ is
  std::set<std::string> warned_;
};

}  // namespace moejit::cache
