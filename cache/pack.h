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

// Whose packs are opened.
struct PackTrust {
  // None: files that belong to this user or to root and that nobody else may write to. Else files
  // of anybody with a good signature of one of these keys, and no others.
  std::optional<KeyRing> ring;
  std::optional<std::int64_t> now;  // seconds since 1970 for expiry; none: the system's clock
  bool is_inspection = false;       // anybody's, for a look: nothing of it will be run
};

// Many entries in one file that is only read (format: cache/pack/pack_format.h). Opening reads
// header, manifest and page table; a lookup reads a page of the index once, and the entry. All of
// it is copied before it is verified and never looked at in the file again, so a file that changes
// or shrinks meanwhile gives errors, never other bytes or a signal; one that was replaced by
// renaming goes on as it was. Any thread may call any function.
class Pack {
 public:
  // Errors: kFileNotFound; kCacheUnusable: no plain file, not to be trusted, or its signatures are
  // not good; kCacheCorrupt: not every byte read is as it was written; kFileRead.
  static Result<std::unique_ptr<Pack>> open(const std::string& path, const PackTrust& trust = {});
  ~Pack();
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;

  // None: it is not in this pack. The entry's checksum and key match; in a pack that was opened
  // with a key ring its SHA-256 is the signed one, too. Errors: kCacheCorrupt, kFileRead, with the
  // pack's path.
  Result<std::optional<Entry>> get(const Digest& key) const;
  // Whether it has this key, without reading the entry. Allocates nothing once the page is known.
  Result<bool> contains(const Digest& key) const;

  // Where an entry lies in the file, and how many bytes it takes as a file of its own.
  struct Place {
    Digest key;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  // All entries in the order of their keys. Errors as of get().
  Result<std::vector<Place>> places() const;
  // Reads and verifies every byte, every SHA-256 included. Each problem is a phrase ("entry
  // 03ab...: its checksum does not match"); empty: all is as it was written.
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

// The packs to use where the caller names none: those of MOEJIT_PACKS. Error kCacheUnusable: one of
// them is no absolute path.
Result<std::vector<std::string>> default_packs();

// "a.moejitpack:b.moejitpack", taken apart; empty parts are left out.
std::vector<std::string> split_paths(std::string_view paths);

// Trust by the key ring at a path (read_key_ring()); where that is empty, by that of
// MOEJIT_PACK_KEYS; where that is not set, by owner and mode.
Result<PackTrust> pack_trust(const std::string& key_ring);

// A pack with one more signature, or another one where the key has signed it before. `pack` are the
// bytes of a file, of which the header is looked at; `digest` says which content the caller has
// verified and means. Errors: kCacheCorrupt: another content, or a damaged header; kInvalidValue:
// it has as many as a pack may have.
Result<std::vector<std::byte>> sign_pack(std::span<const std::byte> pack, const Digest& digest,
                                         const PrivateKey& key, const SignatureTerms& terms);

}  // namespace moejit::cache
