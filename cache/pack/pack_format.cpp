// SPDX-License-Identifier: Apache-2.0
#include "cache/pack/pack_format.h"

#include "cache/entry.h"
#include "cache/file_bytes.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <string_view>

namespace moejit::cache {
namespace {

constexpr std::string_view kPackMagic{"moejpk\x1a\n", 8};
constexpr std::size_t kPackVersionAt = 8, kPackHeaderBytesAt = 12, kPackEntriesAt = 16,
                      kPackRecordBytesAt = 24, kPackRecordsPerPageAt = 28,
                      kPackManifestOffsetAt = 32, kPackManifestBytesAt = 40,
                      kPackTableOffsetAt = 48, kPackIndexOffsetAt = 56, kPackEntriesOffsetAt = 64,
                      kPackEntriesEndAt = 72, kPackFrontAt = 80, kSignedEnd = 160,
                      kPackSignaturesAt = 160, kPackChecksumAt = 224;
constexpr std::size_t kSmallestEntry = 96;  // header and checksum

}  // namespace

std::vector<std::byte> encode_header(const PackHeader& header) {
  std::vector<std::byte> bytes(kPackHeaderBytes);
  put_bytes(bytes, 0, std::as_bytes(std::span(kPackMagic)));
  put<std::uint32_t>(bytes, kPackVersionAt, header.version);
  put<std::uint32_t>(bytes, kPackHeaderBytesAt, kPackHeaderBytes);
  put<std::uint64_t>(bytes, kPackEntriesAt, header.entries);
  put<std::uint32_t>(bytes, kPackRecordBytesAt, kRecordBytes);
  put<std::uint32_t>(bytes, kPackRecordsPerPageAt, kRecordsPerPage);
  put<std::uint64_t>(bytes, kPackManifestOffsetAt, kPackHeaderBytes);
  put<std::uint64_t>(bytes, kPackManifestBytesAt, header.manifest_bytes);
  put<std::uint64_t>(bytes, kPackTableOffsetAt, header.table_offset());
  put<std::uint64_t>(bytes, kPackIndexOffsetAt, header.index_offset());
  put<std::uint64_t>(bytes, kPackEntriesOffsetAt, header.entries_offset());
  put<std::uint64_t>(bytes, kPackEntriesEndAt, header.entries_end);
  put_bytes(bytes, kPackFrontAt, bytes_of(header.front));
  put<std::uint32_t>(bytes, kPackSignaturesAt, header.signatures);
  put_bytes(bytes, kPackChecksumAt, bytes_of(sha256(std::span(bytes).first(kPackChecksumAt))));
  return bytes;
}

Result<PackHeader> decode_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kPackHeaderBytes)
    return corrupt(fmt::format("it has {} bytes, too few", bytes.size()));
  if (!std::ranges::equal(bytes.first(kPackMagic.size()), std::as_bytes(std::span(kPackMagic))))
    return corrupt("it does not begin as a pack does");
  if (decode_digest(bytes.subspan(kPackChecksumAt)) != sha256(bytes.first(kPackChecksumAt)))
    return corrupt("its header's checksum does not match");
  const auto version = take<std::uint32_t>(bytes, kPackVersionAt);
  if (version < 1 || version > kPackVersion)
    return corrupt(fmt::format("its format version is {}, wanted {}", version, kPackVersion));
  const PackHeader header{.version = version,
                          .entries = take<std::uint64_t>(bytes, kPackEntriesAt),
                          .manifest_bytes = take<std::uint64_t>(bytes, kPackManifestBytesAt),
                          .entries_end = take<std::uint64_t>(bytes, kPackEntriesEndAt),
                          .front = decode_digest(bytes.subspan(kPackFrontAt)),
                          .signatures = take<std::uint32_t>(bytes, kPackSignaturesAt)};
  if (header.entries > kMostPackEntries || header.manifest_bytes > kLargestManifest ||
      header.signatures > kMostSignatures || header.entries_end < header.entries_offset() ||
      header.entries_end - header.entries_offset() >
          header.entries * align64(static_cast<std::uint64_t>(kLargestFile)))
    return corrupt("its lengths do not add up");
  // Everything else has only one right value.
  if (!std::ranges::equal(bytes, encode_header(header)))
    return corrupt("its header has unknown fields");
  return header;
}

Digest pack_digest(std::span<const std::byte> header) { return sha256(header.first(kSignedEnd)); }

void encode_record(const PackRecord& record, std::span<std::byte> bytes) {
  put_bytes(bytes, 0, bytes_of(record.key));
  put_bytes(bytes, 32, bytes_of(record.digest));
  put<std::uint64_t>(bytes, 64, record.offset);
  put<std::uint64_t>(bytes, 72, record.bytes);
}

PackRecord decode_record(std::span<const std::byte> bytes) {
  return {.key = decode_digest(bytes),
          .digest = decode_digest(bytes.subspan(32)),
          .offset = take<std::uint64_t>(bytes, 64),
          .bytes = take<std::uint64_t>(bytes, 72)};
}

// The digest is computed, never taken from the entry, which may be of another format than the pack.
Digest entry_digest(std::uint32_t version, std::span<const std::byte> entry) {
  return sha256(version == 1 ? entry.first(entry.size() - sizeof(Digest::bytes)) : entry);
}

bool is_possible(const PackRecord& record, const PackHeader& header) {
  return record.bytes >= kSmallestEntry &&
         record.bytes <= static_cast<std::uint64_t>(kLargestFile) && record.offset % 64 == 0 &&
         record.offset >= header.entries_offset() && record.offset <= header.entries_end &&
         align64(record.bytes) <= header.entries_end - record.offset;
}

bool follows(const PackRecord& record, const PackRecord& before) {
  return record.key > before.key && record.offset == before.offset + align64(before.bytes);
}

}  // namespace moejit::cache
