// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/digest.h"

#include <bit>
#include <cryptopp/sha.h>
#include <cstring>

namespace moejit {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

// Lengths are hashed as 8 bytes, least significant first, whatever the machine's order.
void update_length(CryptoPP::SHA256& hash, std::size_t length) {
  std::array<CryptoPP::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<CryptoPP::byte>(std::uint64_t{length} >> (8 * i));
  hash.Update(bytes.data(), bytes.size());
}

void update_text(CryptoPP::SHA256& hash, std::string_view text) {
  update_length(hash, text.size());
  hash.Update(reinterpret_cast<const CryptoPP::byte*>(text.data()), text.size());
}

Digest finish(CryptoPP::SHA256& hash) {
  Digest digest;
  hash.Final(digest.bytes.data());
  return digest;
}

}  // namespace

std::string Digest::hex() const {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const std::size_t value = kDigits.find(hex[i]);
    if (value == std::string_view::npos) return std::nullopt;
    digest.bytes[i / 2] = static_cast<std::uint8_t>(digest.bytes[i / 2] << 4 | value);
  }
  return digest;
}

std::size_t DigestHash::operator()(const Digest& digest) const noexcept {
  std::size_t value = 0;
  std::memcpy(&value, digest.bytes.data(), sizeof(value));
  return value;
}

Digest sha256(std::span<const std::byte> bytes) {
  CryptoPP::SHA256 hash;
  hash.Update(reinterpret_cast<const CryptoPP::byte*>(bytes.data()), bytes.size());
  return finish(hash);
}

Digest sha256(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

FieldHasher& FieldHasher::add(std::string_view name, std::string_view value) {
  fields_.push_back({std::string(name), std::string(value)});
  return *this;
}

FieldHasher& FieldHasher::add(std::string_view name, std::int64_t value) {
  return add(name, std::to_string(value));
}

FieldHasher& FieldHasher::add_digest_of(std::string_view name, std::string_view text) {
  return add(name, sha256(text).hex());
}

Digest FieldHasher::digest() const {
  CryptoPP::SHA256 hash;
  update_length(hash, fields_.size());
  for (const HashedField& field : fields_) {
    update_text(hash, field.name);
    update_text(hash, field.value);
  }
  return finish(hash);
}

}  // namespace moejit

// The whole library is inlined here. Debian's static library is not for shared objects, and its
// shared one would be one more thing that a program's machine needs.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moejit {

Checksum xxh3_128(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static_assert(sizeof(canonical) == sizeof(Checksum));
  return std::bit_cast<Checksum>(canonical);
}

}  // namespace moejit
