// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_stats.h"

#include "cache/file_bytes.h"
#include "compiler/support/digest.h"

#include <algorithm>

namespace moejit::cache {
namespace {

constexpr std::string_view kStatsMagic = "mjstats1";
constexpr std::size_t kStatsAnewAt = 8, kStatsNumbersAt = 16,
                      kStatsNumbersEnd = kStatsNumbersAt + 8 * kCounts, kStatsCheckAt = 120;
constexpr std::size_t kStatsRecord = kStatsRecordBytes;

// Adds numbers that may be made up, so the sum must not overflow.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

bool is_good(std::span<const std::byte> record) {
  const Digest digest = sha256(record.first(kStatsCheckAt));
  const auto check = bytes_of(digest).first(kStatsRecord - kStatsCheckAt);
  return std::ranges::equal(record.first(kStatsMagic.size()),
                            std::as_bytes(std::span(kStatsMagic))) &&
         std::ranges::equal(record.subspan(kStatsCheckAt), check) &&
         take<std::uint64_t>(record, kStatsAnewAt) <= 1;
}

}  // namespace

std::string_view name_of(Count count) {
  constexpr std::array<std::string_view, kCounts> kNames = {
      "files",        "bytes",         "hits",    "misses",
      "published",    "evicted",       "corrupt", "nondeterministic",
      "failed_reads", "failed_writes", "swept"};
  return kNames[static_cast<std::size_t>(count)];
}

CountTable& CountTable::operator+=(const CountTable& other) {
  for (std::size_t i = 0; i < kCounts; ++i) values[i] = sum(values[i], other.values[i]);
  return *this;
}

std::vector<std::byte> encode_stats_record(const CountTable& change, bool counts_files_anew) {
  static_assert(kStatsNumbersEnd <= kStatsCheckAt, "a record has no place for so many numbers");
  std::vector<std::byte> record(kStatsRecord);
  std::ranges::copy(std::as_bytes(std::span(kStatsMagic)), record.begin());
  put<std::uint64_t>(record, kStatsAnewAt, counts_files_anew ? 1 : 0);
  for (std::size_t i = 0; i < kCounts; ++i)
    put(record, kStatsNumbersAt + 8 * i, static_cast<std::uint64_t>(change.values[i]));
  const Digest digest = sha256(std::span(record).first(kStatsCheckAt));
  std::ranges::copy(bytes_of(digest).first(kStatsRecord - kStatsCheckAt),
                    record.begin() + kStatsCheckAt);
  return record;
}

SummedStats sum_stats(std::span<const std::byte> file) {
  SummedStats stats;
  for (; !file.empty(); file = file.subspan(std::min(kStatsRecord, file.size()))) {
    const auto record = file.first(std::min(kStatsRecord, file.size()));
    if (record.size() < kStatsRecord || !is_good(record)) {
      ++stats.bad_records;
      continue;
    }
    ++stats.records;
    if (take<std::uint64_t>(record, kStatsAnewAt) == 1) {
      stats.is_size_known = true;
      stats.total[Count::kFiles] = stats.total[Count::kBytes] = 0;
    }
    CountTable change;
    for (std::size_t i = 0; i < kCounts; ++i)
      change.values[i] =
          static_cast<std::int64_t>(take<std::uint64_t>(record, kStatsNumbersAt + 8 * i));
    stats.total += change;
  }
  if (stats.bad_records > 0) stats.is_size_known = false;
  return stats;
}

SummedStats read_stats(const CacheFolder& folder) {
  std::vector<std::byte> file;
  if (folder.read("stats", file) != 0) return {};
  return sum_stats(file);
}

}  // namespace moejit::cache
