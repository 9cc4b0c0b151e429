// SPDX-License-Identifier: Apache-2.0
#include "cache/pack_writer.h"

#include "cache/file_bytes.h"
#include "cache/pack/pack_format.h"
#include "compiler/support/file.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>
#include <tuple>

namespace moejit::cache {
namespace {

tl::unexpected<Error> invalid(std::string message) {
  return fail(Stage::kCache, ErrorCode::kInvalidValue, std::move(message));
}

Result<void> check(std::span<const Entry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i > 0 && entry.key <= entries[i - 1].key)
      return invalid(fmt::format("entry {} is not after the one before", entry.key.hex()));
    if (std::ssize(entry.metadata) > kLargestMetadata ||
        std::ssize(entry.payload) > kLargestPayload)
      return invalid(fmt::format("entry {} is larger than a pack may hold", entry.key.hex()));
  }
  return {};
}

void put_page_table(std::span<std::byte> pack, const PackHeader& header) {
  for (std::uint64_t page = 0; page < header.pages(); ++page) {
    const std::size_t row = header.table_offset() + page * kTableRowBytes;
    const auto bytes =
        pack.subspan(header.page_offset(page), header.page_end(page) - header.page_offset(page));
    put_bytes(pack, row, bytes.first(sizeof(Digest::bytes)));
    put_bytes(pack, row + sizeof(Digest::bytes), bytes_of(sha256(bytes)));
  }
}

}  // namespace

Result<std::vector<Entry>> unique_entries(std::vector<Entry> entries) {
  // Versions of moejit may describe the same payload in different words; the shortest text is kept.
  std::ranges::sort(entries, {}, [](const Entry& entry) {
    return std::tuple(entry.key, entry.metadata.size(), std::string_view(entry.metadata));
  });
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (entries[i].key == entries[i - 1].key && entries[i].payload != entries[i - 1].payload)
      return invalid(fmt::format("key {} stands for two different contents", entries[i].key.hex()));
  const auto has_same_key = [](const Entry& a, const Entry& b) { return a.key == b.key; };
  entries.erase(std::unique(entries.begin(), entries.end(), has_same_key), entries.end());
  return entries;
}

Result<std::vector<std::byte>> encode_pack(std::span<const Entry> entries,
                                           std::string_view manifest) {
  MOEJIT_TRY(check(entries));
  PackHeader header{.entries = entries.size(), .manifest_bytes = manifest.size()};
  if (header.entries > kMostPackEntries || header.manifest_bytes > kLargestManifest)
    return invalid(
        fmt::format("{} entries and a manifest of {} bytes are more than a pack may hold",
                    header.entries, header.manifest_bytes));
  std::vector<PackRecord> records;
  header.entries_end = header.entries_offset();
  for (const Entry& entry : entries) {
    records.push_back({.key = entry.key,
                       .offset = header.entries_end,
                       .bytes = entry_file_bytes(entry.metadata.size(), entry.payload.size())});
    header.entries_end += align64(records.back().bytes);
  }
  std::vector<std::byte> pack(header.entries_end);
  put_bytes(pack, kPackHeaderBytes, std::as_bytes(std::span(manifest)));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    PackRecord& record = records[i];
    const auto file = encode_entry(entries[i].key, entries[i].metadata, entries[i].payload);
    put_bytes(pack, record.offset, file);
    record.digest = entry_digest(header.version, file);
    encode_record(record, std::span(pack).subspan(header.index_offset() + i * kRecordBytes));
  }
  put_page_table(pack, header);
  header.front = sha256(std::span<const std::byte>(pack).subspan(
      kPackHeaderBytes, header.index_offset() - kPackHeaderBytes));
  put_bytes(pack, 0, encode_header(header));
  return pack;
}

Result<void> write_pack_file(const std::string& path, const std::vector<std::byte>& bytes) {
  return write_file(path, bytes, 0644);
}

}  // namespace moejit::cache
