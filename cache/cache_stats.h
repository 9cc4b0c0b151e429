// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/cache_folder.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::cache {

// The counted numbers. An enumerator's number is its place in the file: new ones go at the end.
enum class Count : std::size_t {
  kFiles,  // entries present
  kBytes,  // sum of their sizes
  kHits,
  kMisses,  // kernels that were looked for and not found; corrupt ones, too
  kPublished,
  kEvicted,
  kCorrupt,           // files that failed verification
  kNondeterministic,  // compiles whose bytes differ from those under their key
  kFailedReads,
  kFailedWrites,
  kSwept,  // temporary files of dead processes that were removed
};
inline constexpr std::size_t kCounts = 11;

// Returns "hits", "misses" and so on: the words used in JSON and on the terminal.
std::string_view name_of(Count count);

struct CountTable {
  std::array<std::int64_t, kCounts> values{};
  std::int64_t& operator[](Count count) { return values[static_cast<std::size_t>(count)]; }
  std::int64_t operator[](Count count) const { return values[static_cast<std::size_t>(count)]; }
  CountTable& operator+=(const CountTable& other);
  bool operator==(const CountTable&) const = default;
};

// The counters of all processes that ever used a folder: <root>/v2/stats. The file has records of
// 128 bytes, each the change since the writer's previous record. Records are added with one write
// each and without a lock, so a record may be lost when another process rewrites the file. That
// harms nobody: what is counted is advice, and files and bytes are counted again from the folder
// now and then. Integers are little-endian:
//
//   offset size
//    0      8   magic "mjstats1"
//    8      8   1: the numbers of files and bytes hold up to here, forget those before; 0: add
//   16     88   the numbers, in the order of `Count`
//  104     16   zero
//  120      8   the first bytes of the SHA-256 of everything before
struct SummedStats {
  CountTable total;
  bool is_size_known = false;  // files and bytes were counted once, and no record is bad
  std::int64_t records = 0;
  std::int64_t bad_records = 0;  // damaged ones, which are left out
};

inline constexpr std::int64_t kStatsRecordBytes = 128;

std::vector<std::byte> encode_stats_record(const CountTable& change, bool counts_files_anew);
// Sums the records in bytes that may be anything.
SummedStats sum_stats(std::span<const std::byte> file);

// Returns the sums of a folder's file, all 0 if there is none.
SummedStats read_stats(const CacheFolder& folder);

}  // namespace moejit::cache
