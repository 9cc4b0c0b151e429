// SPDX-License-Identifier: Apache-2.0
// The stats of a cache of any bytes, as they are and with a right check for each record.
#include "cache/cache_stats.h"
#include "compiler/support/digest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit;
  std::vector<std::byte> file(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), file.begin());
  const auto check = [&file] {
    const cache::SummedStats stats = cache::sum_stats(file);
    const auto records = (file.size() + cache::kStatsRecordBytes - 1) / cache::kStatsRecordBytes;
    if (static_cast<std::size_t>(stats.records + stats.bad_records) != records) std::abort();
  };
  check();
  for (std::span rest(file); rest.size() >= cache::kStatsRecordBytes;
       rest = rest.subspan(cache::kStatsRecordBytes)) {
    const Digest digest = sha256(rest.first(cache::kStatsRecordBytes - 8));
    std::ranges::copy(std::as_bytes(std::span(digest.bytes)).first(8),
                      rest.begin() + cache::kStatsRecordBytes - 8);
  }
  check();
  return 0;
}
