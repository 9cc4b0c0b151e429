// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_cache.h"

#include "cache/eviction.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/core.h>

namespace moejit::cache {
namespace {

constexpr std::size_t kPrefix = 2;  // hexadecimal digits that name the folder of an entry

std::string name_of(const Digest& key) {
  const std::string hex = key.hex();
  return hex.substr(0, kPrefix) + "/" + hex.substr(kPrefix);
}

// Returns whether the next write would fail as well.
bool is_lasting(int error) {
  constexpr std::array kLasting = {ENOSPC, EDQUOT, EROFS, EACCES, EPERM, EFBIG};
  return std::ranges::count(kLasting, error) > 0;
}

}  // namespace

Result<std::unique_ptr<KernelCache>> KernelCache::open(const std::string& folder, WarningSink warn,
                                                       const CacheSettings& settings) {
  MOEJIT_TRY_ASSIGN(CacheFolder opened, CacheFolder::open(folder, settings.writes_to_network));
  return std::unique_ptr<KernelCache>(
      new KernelCache(std::move(opened), std::move(warn), settings));
}

KernelCache::KernelCache(CacheFolder folder, WarningSink warn, const CacheSettings& settings)
    : folder_(std::move(folder)),
      warn_(std::move(warn)),
      is_writable_(folder_.is_writable()),
      settings_(settings) {
  for (const std::string& problem : settings.problems) warn_once(problem, problem);
  if (folder_.fault() != 0)
    warn_once("open",
              fmt::format("cache folder {}: it cannot be opened ({}); kernels stay in memory",
                          this->folder(), errno_text(folder_.fault())));
}

KernelCache::~KernelCache() {
  if (is_writable()) flush_counts();
}

void KernelCache::add(Count count, std::int64_t number) {
  counts_[static_cast<std::size_t>(count)].fetch_add(number, std::memory_order_relaxed);
}

std::int64_t KernelCache::counted(Count count) const {
  return counts_[static_cast<std::size_t>(count)].load(std::memory_order_relaxed);
}

std::string KernelCache::fault() const {
  return folder_.fault() == 0 ? "" : errno_text(folder_.fault());
}

void KernelCache::warn_once(const std::string& cause, const std::string& message) {
  {
    const std::lock_guard lock(warned_mutex_);
    if (!warned_.insert(cause).second) return;
  }
  if (warn_) warn_(message);
}

std::optional<Entry> KernelCache::get(const Digest& key) {
  auto entry = find(key);
  if (!entry) count_miss();
  return entry;
}

std::optional<Entry> KernelCache::find(const Digest& key) {
  std::vector<std::byte> file;
  const int error = folder_.read(name_of(key), file, is_writable());
  if (error == 0) {
    auto entry = decode_entry(file, key);
    if (entry) {
      add(Count::kHits);
      return std::move(*entry);
    }
    discard(key, entry.error().message);
  } else if (error == EFBIG) {
    discard(key, "it is larger than any entry");
  } else if (error == EPERM) {
    refuse(name_of(key));
  } else if (error != ENOENT) {
    add(Count::kFailedReads);
    warn_once(fmt::format("read {}", error),
              fmt::format("cache folder {}: reading fails ({}); what cannot be read is compiled",
                          folder(), errno_text(error)));
  }
  return std::nullopt;
}

void KernelCache::discard(const Digest& key, std::string_view reason) {
  set_aside(name_of(key), key.hex(), reason);
}

void KernelCache::set_aside(const std::string& name, const std::string& new_name,
                            std::string_view reason) {
  add(Count::kCorrupt);
  const int error = is_writable() ? folder_.quarantine(name, new_name) : EROFS;
  warn_once("entry " + new_name,
            fmt::format("cache entry {} is not used: {}; {}", folder_.path_of(name), reason,
                        error == 0 ? "it was moved to quarantine/ and will be made again"
                                   : "its kernel will be made again"));
}

// Reports a file that could be read and is not believed. What is of the wrong kind is moved aside.
void KernelCache::refuse(const std::string& name) {
  const Refusal why = folder_.why_refused(name);
  if (why.is_obstacle) {
    std::string new_name = why.name;
    std::erase(new_name, '/');
    return set_aside(why.name, new_name, why.reason);
  }
  add(Count::kFailedReads);
  warn_once("distrust",
            fmt::format("cache folder {}: reading fails ({}); what cannot be read is compiled",
                        folder(), reason_of(EPERM, name)));
}

// Returns the error's text; for EPERM it says what is wrong with the file, and what to do.
std::string KernelCache::reason_of(int error, const std::string& name) const {
  if (error != EPERM || name.empty()) return errno_text(error);
  Refusal why = folder_.why_refused(name);
  if (why.name.empty()) why = folder_.why_refused("tmp/new");
  if (why.name.empty()) return errno_text(error);
  return fmt::format("{}: {}; {}", folder_.path_of(why.name), why.reason,
                     why.hint.empty() ? "move it away" : why.hint);
}

bool KernelCache::put(const Digest& key, std::string_view metadata,
                      std::span<const std::byte> payload) {
  warn_read_only();
  if (!is_writable()) return false;
  if (std::ssize(metadata) > kLargestMetadata || std::ssize(payload) > kLargestPayload) {
    report_failed_write(EOVERFLOW);
    return false;
  }
  if (!has_swept_.exchange(true)) add(Count::kSwept, folder_.sweep_temporaries());
  std::vector<std::byte> present;
  const bool is_present = folder_.read(name_of(key), present) == 0;
  if (const auto there = decode_entry(present, key)) {
    // Another process was faster; another version may describe the same payload in other words.
    if (std::ranges::equal(there->payload, payload)) return true;
    add(Count::kNondeterministic);
    warn_once("nondeterministic",
              fmt::format("cache entry {}: a new compile under its key has other bytes, which "
                          "must not be; the new one is kept",
                          folder_.path_of(name_of(key))));
  }
  const std::vector<std::byte> file = encode_entry(key, metadata, payload);
  if (const int error = folder_.publish(name_of(key), file); error != 0) {
    report_failed_write(error, name_of(key));
    return false;
  }
  add(Count::kPublished);
  add(Count::kFiles, is_present ? 0 : 1);
  add(Count::kBytes, std::ssize(file) - (is_present ? std::ssize(present) : 0));
  keep_within_limits();
  return true;
}

void KernelCache::warn_read_only() {
  if (folder_.is_writable() || folder_.fault() != 0) return;
  if (folder_.network().empty())
    warn_once("read-only",
              fmt::format("cache folder {} is read-only; new kernels stay in memory", folder()));
  else
    warn_once("read-only",
              fmt::format("cache folder {} is on a network file system ({}) and only read; new "
                          "kernels stay in memory. Name a local folder with MOEJIT_CACHE_DIR, or "
                          "allow writing with MOEJIT_CACHE_NETWORK=write",
                          folder(), folder_.network()));
}

void KernelCache::report_failed_write(int error, const std::string& name) {
  add(Count::kFailedWrites);
  const std::string text = reason_of(error, name);
  {
    const std::lock_guard lock(warned_mutex_);
    write_error_ = text;
  }
  if (is_lasting(error)) is_writable_ = false;
  warn_once(fmt::format("write {}", error),
            fmt::format("cache folder {}: writing fails ({}); {}", folder(), text,
                        is_lasting(error) ? "new kernels stay in memory"
                                          : "some new kernels stay in memory"));
}

std::string KernelCache::write_problem() const {
  if (folder_.fault() != 0) return errno_text(folder_.fault());
  if (!folder_.network().empty())
    return fmt::format("it is on a network file system ({}) and only read", folder_.network());
  if (!folder_.is_writable()) return "it is read-only";
  const std::lock_guard lock(warned_mutex_);
  return write_error_;
}

std::vector<Digest> KernelCache::keys() const {
  std::vector<Digest> keys;
  for (const FileInfo& file : entry_files(folder_))
    keys.push_back(
        Digest::from_hex(file.name.substr(0, kPrefix) + file.name.substr(kPrefix + 1)).value());
  return keys;
}

std::vector<Digest> KernelCache::quarantined() const {
  std::vector<Digest> keys;
  for (const std::string& name : folder_.names_in("quarantine"))
    if (const auto key = Digest::from_hex(name.substr(0, name.find('-')))) keys.push_back(*key);
  return keys;
}

std::optional<EntryInfo> KernelCache::inspect(const Digest& key) const {
  EntryInfo info;
  info.key = key;
  info.path = folder_.path_of(name_of(key));
  std::vector<std::byte> file;
  const int error = folder_.read(name_of(key), file);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) {
    info.problem = "it cannot be read: " + reason_of(error, name_of(key));
    return info;
  }
  info.file_bytes = std::ssize(file);
  auto entry = decode_entry(file, key);
  if (!entry) {
    info.problem = entry.error().message;
    return info;
  }
  info.metadata = std::move(entry->metadata);
  info.payload_bytes = std::ssize(entry->payload);
  return info;
}

std::vector<EntryInfo> KernelCache::list() const {
  std::vector<EntryInfo> entries;
  for (const Digest& key : keys())
    if (auto info = inspect(key)) entries.push_back(std::move(*info));
  return entries;
}

CacheCounters KernelCache::counters() const {
  return {.hits = counted(Count::kHits),
          .misses = counted(Count::kMisses),
          .corrupt = counted(Count::kCorrupt),
          .published = counted(Count::kPublished),
          .failed_reads = counted(Count::kFailedReads),
          .failed_writes = counted(Count::kFailedWrites),
          .evicted = counted(Count::kEvicted),
          .nondeterministic = counted(Count::kNondeterministic)};
}

}  // namespace moejit::cache
