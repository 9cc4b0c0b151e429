// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// A pack: many cache entries in one file that nobody writes to. Integers are little-endian, parts
// follow each other at multiples of 64 bytes, and what is between them is zero:
//
//   header                256 bytes
//   manifest              JSON, for people and tools: what is inside, which compilers made it
//   page table            for each page of the index: its first key (32), its SHA-256 (32)
//   index                 a record of 80 bytes for each entry, in the order of the keys:
//                           key (32), SHA-256 of its entry (32), offset (8), bytes (8)
//   entries               each as in a file of its own (cache/entry.h), in the order of the keys
//   signatures            192 bytes each, see cache/pack/signature_block.h
//
//   offset size of the header
//    0      8   magic "moejpk\x1a\n"
//    8      4   format version, 2
//   12      4   header bytes, 256
//   16      8   entries
//   24      4   bytes of a record, 80
//   28      4   records of a page, 64; the last page may have fewer
//   32      8   offset of the manifest, 256
//   40      8   bytes of the manifest
//   48      8   offset of the page table
//   56      8   offset of the index
//   64      8   offset of the first entry
//   72      8   end of the entries, where the signatures begin
//   80     32   SHA-256 of everything from the manifest to the index
//  112     48   zero
//  160      4   signatures
//  164     60   zero
//  224     32   SHA-256 of the header before
//
// It is a tree of digests. The header vouches for the page table, and the table for each page of
// the index (the last one with the zeros behind it). A record of a page vouches for its entry.
// Opening reads header, manifest and table; a lookup reads a page and an entry. The SHA-256 of the
// header's first 160 bytes is the pack's digest: signatures sign it, and adding one does not change
// it.
//
// If nobody asks for a signature the tree has no root that could be trusted. Then the digest in the
// record is not compared; the entry's own checksum and key show accidents.
//
// Packs of format 1 are still read. Their entries are of format 1, and a record's digest covers the
// entry less its last 32 bytes.
namespace moejit::cache {

inline constexpr std::uint32_t kPackVersion = 2;
inline constexpr std::size_t kPackHeaderBytes = 256;
inline constexpr std::size_t kRecordBytes = 80;
inline constexpr std::size_t kRecordsPerPage = 64;
inline constexpr std::size_t kTableRowBytes = 64;
inline constexpr std::size_t kSignatureBlockBytes = 192;
inline constexpr std::uint64_t kMostPackEntries = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMostSignatures = 16;
inline constexpr std::uint64_t kLargestManifest = std::uint64_t{1} << 20;

constexpr std::uint64_t align64(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

struct PackHeader {
  std::uint32_t version = kPackVersion;
  std::uint64_t entries = 0;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t entries_end = 0;
  Digest front;  // SHA-256 of manifest and page table
  std::uint32_t signatures = 0;

  std::uint64_t pages() const { return (entries + kRecordsPerPage - 1) / kRecordsPerPage; }
  std::uint64_t table_offset() const { return kPackHeaderBytes + align64(manifest_bytes); }
  std::uint64_t index_offset() const { return table_offset() + pages() * kTableRowBytes; }
  std::uint64_t entries_offset() const { return index_offset() + align64(entries * kRecordBytes); }
  std::uint64_t file_bytes() const { return entries_end + signatures * kSignatureBlockBytes; }
  // Returns where a page of the index begins; the last page includes the zeros behind it.
  std::uint64_t page_offset(std::uint64_t page) const {
    return index_offset() + page * kRecordsPerPage * kRecordBytes;
  }
  std::uint64_t page_end(std::uint64_t page) const {
    return page + 1 < pages() ? page_offset(page + 1) : entries_offset();
  }
  std::uint64_t records_of(std::uint64_t page) const {
    return page + 1 < pages() ? kRecordsPerPage : entries - page * kRecordsPerPage;
  }
};

std::vector<std::byte> encode_header(const PackHeader& header);
// Returns the header in these bytes. Error kCacheCorrupt; as in all functions here, its message is
// a phrase without a file name.
Result<PackHeader> decode_header(std::span<const std::byte> bytes);
Digest pack_digest(std::span<const std::byte> header);

// The place of an entry. It takes align64(bytes) in the file.
struct PackRecord {
  Digest key;
  Digest digest;  // entry_digest()
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
void encode_record(const PackRecord& record, std::span<std::byte> bytes);
PackRecord decode_record(std::span<const std::byte> bytes);
// Returns the digest that the record of an entry with these bytes has in a pack of this version.
Digest entry_digest(std::uint32_t version, std::span<const std::byte> entry);
// Returns whether an entry may lie where the record says.
bool is_possible(const PackRecord& record, const PackHeader& header);
// Returns whether an entry may be the next one behind another. Entries share no byte, so a pack
// unpacks to no more than its file has.
bool follows(const PackRecord& record, const PackRecord& before);

}  // namespace moejit::cache
