// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "cache/signature.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

// Says whose packs are opened.
struct PackTrust {
  // Absent: a file is trusted if it belongs to this user or to root and nobody else may write to
  // it. Set: a file is trusted if it has a good signature by one of these keys, whoever owns it; no
  // other file is.
  std::optional<KeyRing> ring;
  std::optional<std::int64_t> now;  // seconds since 1970 for expiry; none: the system's clock
  bool is_inspection = false;  // whether any pack is opened, only to look: none of it will be run
};

// Many entries in one file that is only read (format: cache/pack/pack_format.h). Opening reads
// header, manifest and page table; a lookup reads a page of the index once, and the entry.
// Everything is copied before it is verified and never read from the file again. So a file that
// changes or shrinks meanwhile gives errors, never other bytes or a signal. A file that was
// replaced by renaming stays usable. Any thread may call any function.
class Pack {
 public:
  // Opens a pack. Errors: kFileNotFound; kCacheUnusable (no plain file, not to be trusted, or no
  // good signature); kCacheCorrupt (not every byte read is as it was written); kFileRead.
  static Result<std::unique_ptr<Pack>> open(const std::string& path, const PackTrust& trust = {});
  ~Pack();
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;

  // Returns the entry of a key, or none if this pack does not have it. Its checksum and key match;
  // if the pack was opened with a key ring its SHA-256 is the signed one too. Errors:
  // kCacheCorrupt, kFileRead, with the pack's path.
  Result<std::optional<Entry>> get(const Digest& key) const;
  // Returns whether the pack has this key, without reading the entry. Allocates nothing once the
  // page is known.
  Result<bool> contains(const Digest& key) const;

  // Place of an entry in the file, and how many bytes it takes as a file of its own.
  struct Place {
    Digest key;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  // Returns the places of all entries in the order of their keys, with the errors of get().
  Result<std::vector<Place>> places() const;
  // Reads and verifies every byte and every SHA-256. Returns a phrase for each problem ("entry
  // 03ab...: its checksum does not match"), none if all is as it was written.
  std::vector<std::string> verify() const;

  const std::string& path() const;
  const std::string& manifest() const;
  std::int64_t size() const;  // entries
  std::int64_t file_bytes() const;
  const Digest& digest() const;  // of the content; signatures do not change it
  const std::vector<Signature>& signatures() const;

 private:
  struct Impl;
  explicit Pack(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the packs of MOEJIT_PACKS, for a caller that names none. Error kCacheUnusable: one of
// them is not an absolute path.
Result<std::vector<std::string>> default_packs();

// Splits "a.moejitpack:b.moejitpack" at the colons; empty parts are left out.
std::vector<std::string> split_paths(std::string_view paths);

// Returns trust by the key ring at a path (read_key_ring()). If the path is empty, by the ring of
// MOEJIT_PACK_KEYS; if that is not set, by owner and mode.
Result<PackTrust> pack_trust(const std::string& key_ring);

// Returns the pack with one more signature; a key that has signed it before replaces its signature.
// `pack` holds the bytes of a file, of which only the header is read; `digest` tells which content
// the caller has verified and means. Errors: kCacheCorrupt: another content, or a damaged header;
// kInvalidValue: the pack has as many signatures as it may have.
Result<std::vector<std::byte>> sign_pack(std::span<const std::byte> pack, const Digest& digest,
                                         const PrivateKey& key, const SignatureTerms& terms);

}  // namespace moejit::cache
