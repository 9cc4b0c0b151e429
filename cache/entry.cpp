// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include "cache/file_bytes.h"
#include "compiler/support/digest.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cache {
namespace {

constexpr std::string_view kEntryMagic{"moejit\x1a\n", 8};
constexpr std::uint32_t kEntryVersion = 2;
constexpr std::uint32_t kEntryVersionWithSha256 = 1;
constexpr std::size_t kHeaderBytes = 80;
constexpr std::size_t kPayloadAlignment = 64;
constexpr std::size_t kChecksumBytes = sizeof(Checksum::bytes);

constexpr std::size_t kEntryVersionAt = 8, kEntryHeaderBytesAt = 12, kEntryKeyAt = 16,
                      kEntryFlagsAt = 48, kEntryReservedAt = 52, kEntryMetadataBytesAt = 56,
                      kEntryPayloadOffsetAt = 64, kEntryPayloadBytesAt = 72;

std::size_t payload_offset(std::size_t metadata_bytes) {
  const std::size_t end = kHeaderBytes + metadata_bytes;
  return (end + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

// Returns the bytes before the checksum, or an error if the checksum does not match.
Result<std::span<const std::byte>> check_sum(std::span<const std::byte> file) {
  const auto matches = [&](std::span<const std::byte> sum) {
    return std::ranges::equal(file.last(sum.size()), sum);
  };
  const auto version = take<std::uint32_t>(file, kEntryVersionAt);
  if (version == kEntryVersion) {
    const auto content = file.first(file.size() - kChecksumBytes);
    const Checksum checksum = xxh3_128(content);
    if (matches(std::as_bytes(std::span(checksum.bytes)))) return content;
  } else if (version == kEntryVersionWithSha256 && file.size() >= kHeaderBytes + kDigestBytes) {
    const auto content = file.first(file.size() - kDigestBytes);
    const Digest digest = sha256(content);
    if (matches(bytes_of(digest))) return content;
  } else {
    return corrupt(fmt::format("its format version is {}, wanted {}", version, kEntryVersion));
  }
  return corrupt("its checksum does not match");
}

// Checks the rest of the header: its length, flags and key.
Result<void> check_header(std::span<const std::byte> file, const Digest& key) {
  if (take<std::uint32_t>(file, kEntryHeaderBytesAt) != kHeaderBytes)
    return corrupt("its header has a wrong length");
  if (take<std::uint32_t>(file, kEntryFlagsAt) != 0 ||
      take<std::uint32_t>(file, kEntryReservedAt) != 0)
    return corrupt("its header has unknown flags");
  if (!std::ranges::equal(file.subspan(kEntryKeyAt, kDigestBytes), bytes_of(key)))
    return corrupt("it was written for another key");
  return {};
}

}  // namespace

std::size_t entry_file_bytes(std::size_t metadata_bytes, std::size_t payload_bytes) {
  return payload_offset(metadata_bytes) + payload_bytes + kChecksumBytes;
}

std::vector<std::byte> encode_entry(const Digest& key, std::string_view metadata,
                                    std::span<const std::byte> payload) {
  const std::size_t offset = payload_offset(metadata.size());
  const std::size_t end = offset + payload.size();
  std::vector<std::byte> file(end + kChecksumBytes);
  put_bytes(file, 0, std::as_bytes(std::span(kEntryMagic)));
  put<std::uint32_t>(file, kEntryVersionAt, kEntryVersion);
  put<std::uint32_t>(file, kEntryHeaderBytesAt, kHeaderBytes);
  put_bytes(file, kEntryKeyAt, bytes_of(key));
  put<std::uint64_t>(file, kEntryMetadataBytesAt, metadata.size());
  put<std::uint64_t>(file, kEntryPayloadOffsetAt, offset);
  put<std::uint64_t>(file, kEntryPayloadBytesAt, payload.size());
  put_bytes(file, kHeaderBytes, std::as_bytes(std::span(metadata)));
  put_bytes(file, offset, payload);
  const Checksum checksum = xxh3_128(std::span(file).first(end));
  put_bytes(file, end, std::as_bytes(std::span(checksum.bytes)));
  return file;
}

Result<Entry> decode_entry(std::span<const std::byte> file, const Digest& key) {
  if (file.size() < kHeaderBytes + kChecksumBytes)
    return corrupt(fmt::format("it has {} bytes, too few", file.size()));
  if (!std::ranges::equal(file.first(kEntryMagic.size()), std::as_bytes(std::span(kEntryMagic))))
    return corrupt("it does not begin as a cache entry does");
  MOEJIT_TRY_ASSIGN(const std::span<const std::byte> content, check_sum(file));
  const std::size_t end = content.size();
  // The checksum is no signature: the checks below must hold for made-up bytes too.
  MOEJIT_TRY(check_header(file, key));
  const auto metadata_bytes = take<std::uint64_t>(file, kEntryMetadataBytesAt);
  const auto payload_bytes = take<std::uint64_t>(file, kEntryPayloadBytesAt);
  if (metadata_bytes > kLargestMetadata || payload_bytes > kLargestPayload ||
      take<std::uint64_t>(file, kEntryPayloadOffsetAt) != payload_offset(metadata_bytes) ||
      end != payload_offset(metadata_bytes) + payload_bytes)
    return corrupt("its lengths do not add up");
  const std::size_t offset = end - payload_bytes;
  const std::size_t metadata_end = kHeaderBytes + metadata_bytes;
  if (!is_zero(file.subspan(metadata_end, offset - metadata_end)))
    return corrupt("its padding is not zero");
  const auto metadata = file.subspan(kHeaderBytes, metadata_bytes);
  const auto payload = file.subspan(offset, payload_bytes);
  return Entry{
      .key = key,
      .metadata = std::string(reinterpret_cast<const char*>(metadata.data()), metadata.size()),
      .payload = std::vector<std::byte>(payload.begin(), payload.end())};
}

}  // namespace moejit::cache
