// SPDX-License-Identifier: Apache-2.0
#include "cache/pack/pack_format.h"

#include "cache/entry.h"
#include "cache/little_endian.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <string_view>

namespace moejit::cache {
namespace {

constexpr std::string_view kMagic{"moejpk\x1a\n", 8};
constexpr std::size_t kVersionAt = 8, kHeaderBytesAt = 12, kEntriesAt = 16, kRecordBytesAt = 24,
                      kRecordsPerPageAt = 28, kManifestOffsetAt = 32, kManifestBytesAt = 40,
                      kTableOffsetAt = 48, kIndexOffsetAt = 56, kEntriesOffsetAt = 64,
                      kEntriesEndAt = 72, kFrontAt = 80, kSignedEnd = 160, kSignaturesAt = 160,
                      kChecksumAt = 224;
constexpr std::size_t kSmallestEntry = 96;  // header and checksum

tl::unexpected<Error> corrupt(std::string message) {
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt, std::move(message));
}

}  // namespace

std::span<const std::byte> bytes_of(const Digest& digest) {
  return std::as_bytes(std::span(digest.bytes));
}

Digest decode_digest(std::span<const std::byte> bytes) {
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes.data(), digest.bytes.size());
  return digest;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

std::vector<std::byte> encode_header(const PackHeader& header) {
  std::vector<std::byte> bytes(kPackHeaderBytes);
  put_bytes(bytes, 0, std::as_bytes(std::span(kMagic)));
  put<std::uint32_t>(bytes, kVersionAt, header.version);
  put<std::uint32_t>(bytes, kHeaderBytesAt, kPackHeaderBytes);
  put<std::uint64_t>(bytes, kEntriesAt, header.entries);
  put<std::uint32_t>(bytes, kRecordBytesAt, kRecordBytes);
  put<std::uint32_t>(bytes, kRecordsPerPageAt, kRecordsPerPage);
  put<std::uint64_t>(bytes, kManifestOffsetAt, kPackHeaderBytes);
  put<std::uint64_t>(bytes, kManifestBytesAt, header.manifest_bytes);
  put<std::uint64_t>(bytes, kTableOffsetAt, header.table_offset());
  put<std::uint64_t>(bytes, kIndexOffsetAt, header.index_offset());
  put<std::uint64_t>(bytes, kEntriesOffsetAt, header.entries_offset());
  put<std::uint64_t>(bytes, kEntriesEndAt, header.entries_end);
  put_bytes(bytes, kFrontAt, bytes_of(header.front));
  put<std::uint32_t>(bytes, kSignaturesAt, header.signatures);
  put_bytes(bytes, kChecksumAt, bytes_of(sha256(std::span(bytes).first(kChecksumAt))));
  return bytes;
}

Result<PackHeader> decode_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kPackHeaderBytes)
    return corrupt(fmt::format("it has {} bytes, too few", bytes.size()));
  if (!std::ranges::equal(bytes.first(kMagic.size()), std::as_bytes(std::span(kMagic))))
    return corrupt("it does not begin as a pack does");
  if (decode_digest(bytes.subspan(kChecksumAt)) != sha256(bytes.first(kChecksumAt)))
    return corrupt("its header's checksum does not match");
  const auto version = take<std::uint32_t>(bytes, kVersionAt);
  if (version < 1 || version > kPackVersion)
    return corrupt(fmt::format("its format version is {}, wanted {}", version, kPackVersion));
  const PackHeader header{.version = version,
                          .entries = take<std::uint64_t>(bytes, kEntriesAt),
                          .manifest_bytes = take<std::uint64_t>(bytes, kManifestBytesAt),
                          .entries_end = take<std::uint64_t>(bytes, kEntriesEndAt),
                          .front = decode_digest(bytes.subspan(kFrontAt)),
                          .signatures = take<std::uint32_t>(bytes, kSignaturesAt)};
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

}  // namespace moejit::cache
