// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_cache.h"

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

// After these the next write would fail as well.
bool is_lasting(int error) {
  constexpr std::array kLasting = {ENOSPC, EDQUOT, EROFS, EACCES, EPERM, EFBIG};
  return std::ranges::count(kLasting, error) > 0;
}

}  // namespace

Result<std::unique_ptr<KernelCache>> KernelCache::open(const std::string& folder,
                                                       WarningSink warn) {
  MOEJIT_TRY_ASSIGN(CacheFolder opened, CacheFolder::open(folder));
  return std::unique_ptr<KernelCache>(new KernelCache(std::move(opened), std::move(warn)));
}

KernelCache::KernelCache(CacheFolder folder, WarningSink warn)
    : folder_(std::move(folder)), warn_(std::move(warn)), is_writable_(folder_.is_writable()) {}

void KernelCache::warn_once(const std::string& cause, const std::string& message) {
  {
    const std::lock_guard lock(warned_mutex_);
    if (!warned_.insert(cause).second) return;
  }
  if (warn_) warn_(message);
}

std::optional<Entry> KernelCache::get(const Digest& key) {
  std::vector<std::byte> file;
  const int error = folder_.read(name_of(key), file);
  if (error == 0) {
    auto entry = decode_entry(file, key);
    if (entry) {
      ++hits_;
      return std::move(*entry);
    }
    discard(key, entry.error().message);
  } else if (error == EFBIG) {
    discard(key, "it is larger than any entry");
  } else if (error != ENOENT) {
    ++failed_reads_;
    warn_once(fmt::format("read {}", error),
              fmt::format("cache folder {}: reading fails ({}); what cannot be read is compiled",
                          folder(), errno_text(error)));
  }
  ++misses_;
  return std::nullopt;
}

void KernelCache::discard(const Digest& key, std::string_view reason) {
  ++corrupt_;
  const int error = is_writable() ? folder_.quarantine(name_of(key), key.hex()) : EROFS;
  warn_once("entry " + key.hex(),
            fmt::format("cache entry {}/v1/{} is not used: {}; {}", folder(), name_of(key), reason,
                        error == 0 ? "it was moved to quarantine/ and is made anew"
                                   : "its kernel is made anew"));
}

bool KernelCache::put(const Digest& key, std::string_view metadata,
                      std::span<const std::byte> payload) {
  if (!folder_.is_writable())
    warn_once("read-only",
              fmt::format("cache folder {} is read-only; new kernels stay in memory", folder()));
  if (!is_writable()) return false;
  if (std::ssize(metadata) > kLargestMetadata || std::ssize(payload) > kLargestPayload) {
    report_failed_write(EOVERFLOW);
    return false;
  }
  const int error = folder_.publish(name_of(key), encode_entry(key, metadata, payload));
  if (error != 0) {
    report_failed_write(error);
    return false;
  }
  ++published_;
  return true;
}

void KernelCache::report_failed_write(int error) {
  ++failed_writes_;
  if (is_lasting(error)) is_writable_ = false;
  warn_once(fmt::format("write {}", error),
            fmt::format("cache folder {}: writing fails ({}); {}", folder(), errno_text(error),
                        is_lasting(error) ? "new kernels stay in memory"
                                          : "some new kernels stay in memory"));
}

std::vector<EntryInfo> KernelCache::list() const {
  std::vector<EntryInfo> entries;
  for (const std::string& prefix : folder_.names_in(".")) {
    if (prefix.size() != kPrefix) continue;
    for (const std::string& rest : folder_.names_in(prefix)) {
      const auto key = Digest::from_hex(prefix + rest);
      if (!key) continue;
      EntryInfo info{.key = *key, .path = fmt::format("{}/v1/{}/{}", folder(), prefix, rest)};
      std::vector<std::byte> file;
      if (const int error = folder_.read(prefix + "/" + rest, file); error != 0)
        info.problem = "it cannot be read: " + errno_text(error);
      info.file_bytes = std::ssize(file);
      if (info.problem.empty()) {
        auto entry = decode_entry(file, *key);
        if (!entry) info.problem = entry.error().message;
        if (entry) info.metadata = std::move(entry->metadata);
        if (entry) info.payload_bytes = std::ssize(entry->payload);
      }
      entries.push_back(std::move(info));
    }
  }
  return entries;
}

CacheCounters KernelCache::counters() const {
  return {.hits = hits_,
          .misses = misses_,
          .corrupt = corrupt_,
          .published = published_,
          .failed_reads = failed_reads_,
          .failed_writes = failed_writes_};
}

}  // namespace moejit::cache
