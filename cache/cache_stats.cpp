// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_stats.h"

#include "compiler/support/digest.h"

#include <algorithm>

namespace moejit::cache {
namespace {

constexpr std::string_view kMagic = "mjstats1";
constexpr std::size_t kAnewAt = 8, kNumbersAt = 16, kNumbersEnd = kNumbersAt + 8 * kCounts,
                      kCheckAt = 120;
constexpr std::size_t kRecord = kStatsRecordBytes;

void put(std::span<std::byte> record, std::size_t offset, std::int64_t value) {
  for (std::size_t i = 0; i < 8; ++i)
    record[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
}

std::int64_t take(std::span<const std::byte> record, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i)
    value |= static_cast<std::uint64_t>(record[offset + i]) << (8 * i);
  return static_cast<std::int64_t>(value);
}

// Adds numbers that may be made up, so the sum must not overflow.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

bool is_good(std::span<const std::byte> record) {
  const Digest digest = sha256(record.first(kCheckAt));
  const auto check = std::as_bytes(std::span(digest.bytes)).first(kRecord - kCheckAt);
  return std::ranges::equal(record.first(kMagic.size()), std::as_bytes(std::span(kMagic))) &&
         std::ranges::equal(record.subspan(kCheckAt), check) && take(record, kAnewAt) >= 0 &&
         take(record, kAnewAt) <= 1;
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
  static_assert(kNumbersEnd <= kCheckAt, "a record has no place for so many numbers");
  std::vector<std::byte> record(kRecord);
  std::ranges::copy(std::as_bytes(std::span(kMagic)), record.begin());
  put(record, kAnewAt, counts_files_anew ? 1 : 0);
  for (std::size_t i = 0; i < kCounts; ++i) put(record, kNumbersAt + 8 * i, change.values[i]);
  const Digest digest = sha256(std::span(record).first(kCheckAt));
  std::ranges::copy(std::as_bytes(std::span(digest.bytes)).first(kRecord - kCheckAt),
                    record.begin() + kCheckAt);
  return record;
}

SummedStats sum_stats(std::span<const std::byte> file) {
  SummedStats stats;
  for (; !file.empty(); file = file.subspan(std::min(kRecord, file.size()))) {
    const auto record = file.first(std::min(kRecord, file.size()));
    if (record.size() < kRecord || !is_good(record)) {
      ++stats.bad_records;
      continue;
    }
    ++stats.records;
    if (take(record, kAnewAt) == 1) {
      stats.is_size_known = true;
      stats.total[Count::kFiles] = stats.total[Count::kBytes] = 0;
    }
    CountTable change;
    for (std::size_t i = 0; i < kCounts; ++i) change.values[i] = take(record, kNumbersAt + 8 * i);
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
