// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

// The content of one cache file. `metadata` is the caller's, by convention canonical JSON.
struct Entry {
  Digest key;
  std::string metadata;
  std::vector<std::byte> payload;
  bool operator==(const Entry&) const = default;
};

// Most bytes of metadata. Larger ones are neither written nor read.
inline constexpr std::int64_t kLargestMetadata = std::int64_t{1} << 20;
inline constexpr std::int64_t kLargestPayload = std::int64_t{64} << 20;
inline constexpr std::int64_t kLargestFile = kLargestMetadata + kLargestPayload + 4096;

// Returns the bytes of the file, which the entry alone decides. Integers are little-endian:
//
//   offset size
//    0      8   magic "moejit\x1a\n"
//    8      4   format version, 2
//   12      4   header bytes, 80: where the metadata starts
//   16     32   key
//   48      4   flags, 0
//   52      4   zero
//   56      8   metadata bytes
//   64      8   payload offset, a multiple of 64
//   72      8   payload bytes
//   80          metadata, zeros up to the payload offset, payload
//   end    16   XXH3-128 of everything before, in canonical order
//
// The checksum shows accidents. Anyone who may write to the place can make any checksum fit. Rules
// for owners (cache/trust.h) or a pack's signature over SHA-256 keep such writers out. Files of
// format 1, which end in 32 bytes of SHA-256 instead, are still read.
std::vector<std::byte> encode_entry(const Digest& key, std::string_view metadata,
                                    std::span<const std::byte> payload);
// Returns how many bytes encode_entry() makes.
std::size_t entry_file_bytes(std::size_t metadata_bytes, std::size_t payload_bytes);

// Returns the entry in a file's bytes, which may be anything. Error kCacheCorrupt unless every byte
// is as it was written and the key is `key`. Its message is a phrase without a file name ("its
// checksum does not match").
Result<Entry> decode_entry(std::span<const std::byte> file, const Digest& key);

}  // namespace moejit::cache
