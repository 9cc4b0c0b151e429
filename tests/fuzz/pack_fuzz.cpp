// SPDX-License-Identifier: Apache-2.0
// A pack of any bytes, as it is and with right digests of header, front, pages and signatures,
// which random bytes never have. What opens is looked through; what verifies has to be what its
// entries are written as; and no signature is good that nobody made.
#include "cache/file_bytes.h"
#include "cache/pack.h"
#include "cache/pack/pack_format.h"
#include "cache/pack_writer.h"
#include "tests/fuzz/memory_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

using namespace moejit;
using namespace moejit::cache;
using Bytes = std::vector<std::byte>;

constexpr PrivateKey kSigner{{1, 2, 3}};

// A key with which nothing is ever signed here.
const PublicKey& unused_key() {
  static const PublicKey key = PrivateKey{{9, 9, 9}}.public_key();
  return key;
}

void require(bool holds) {
  if (!holds) std::abort();
}

void look_through(const Pack& pack, const Bytes& file) {
  const bool is_good = pack.verify().empty();
  const auto places = pack.places();
  require(places || !is_good);
  if (!places) return;
  std::vector<Entry> entries;
  for (const Pack::Place& place : *places) {
    // Where pages are out of order, a lookup may miss what is there.
    const auto has_it = pack.contains(place.key);
    auto entry = pack.get(place.key);
    require(!is_good || (has_it && *has_it && entry && entry->has_value()));
    if (!entry || !entry->has_value()) continue;
    require((*entry)->key == place.key);
    entries.push_back(std::move(**entry));
  }
  if (!is_good) return;
  require(std::ssize(entries) == pack.size());
  if (take<std::uint32_t>(file, 8) != kPackVersion) return;  // nobody writes those any more
  const auto again = encode_pack(entries, pack.manifest());
  require(again.has_value());
  // All but the number of signatures and what follows it.
  require(
      again->size() <= file.size() &&
      std::equal(again->begin(), again->begin() + 160, file.begin()) &&
      std::equal(again->begin() + kPackHeaderBytes, again->end(), file.begin() + kPackHeaderBytes));
  const auto resigned = sign_pack(file, pack.digest(), kSigner, {.serial = 1});
  require(resigned || pack.signatures().size() == kMostSignatures);
  if (!resigned) return;
  const auto reopened = Pack::open(testing::file_with(*resigned), {.is_inspection = true});
  require(reopened && (*reopened)->digest() == pack.digest());
}

void check(const Bytes& file) {
  const std::string& path = testing::file_with(file);
  const KeyRing ring{.path = "ring", .keys = {{.key = unused_key(), .file = "unused.pem"}}};
  require(!Pack::open(path, {.ring = ring, .now = 0}));
  const auto pack = Pack::open(path, {.is_inspection = true});
  if (pack) look_through(**pack, file);
}

// Makes the digests fit, from the inside out, where the lengths allow it.
void seal(Bytes& file) {
  if (file.size() < kPackHeaderBytes) return;
  const auto field = [&file](std::size_t at) { return take<std::uint64_t>(file, at); };
  PackHeader header{.entries = field(16),
                    .manifest_bytes = field(40),
                    .entries_end = field(72),
                    .signatures = take<std::uint32_t>(file, 160)};
  const bool is_possible = header.entries <= kMostPackEntries &&
                           header.manifest_bytes <= kLargestManifest &&
                           header.entries_offset() <= file.size();
  if (is_possible) {
    const std::span<std::byte> bytes(file);
    for (std::uint64_t page = 0; page < header.pages(); ++page) {
      const auto records =
          bytes.subspan(header.page_offset(page), header.page_end(page) - header.page_offset(page));
      const std::size_t row = header.table_offset() + page * kTableRowBytes;
      put_bytes(bytes, row, records.first(sizeof(Digest::bytes)));
      put_bytes(bytes, row + sizeof(Digest::bytes), bytes_of(sha256(records)));
    }
    put_bytes(bytes, 80,
              bytes_of(sha256(
                  bytes.subspan(kPackHeaderBytes, header.index_offset() - kPackHeaderBytes))));
    for (std::uint64_t at = header.entries_end;
         at < file.size() && file.size() - at >= kSignatureBlockBytes; at += kSignatureBlockBytes) {
      const auto block = bytes.subspan(at, kSignatureBlockBytes);
      // So that the signature itself is looked at.
      if (at == header.entries_end) put_bytes(block, 16, bytes_of(unused_key().id()));
      put_bytes(block, 160, bytes_of(sha256(block.first(160))));
    }
  }
  put_bytes(file, 224, bytes_of(sha256(std::span<const std::byte>(file).first(224))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes file(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), file.begin());
  check(file);
  seal(file);
  check(file);
  return 0;
}
