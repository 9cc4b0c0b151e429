// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit {

// A SHA-256.
struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  std::string hex() const;  // 64 lower-case digits
  // Returns none if the text is not 64 lower-case hexadecimal digits.
  static std::optional<Digest> from_hex(std::string_view hex);

  auto operator<=>(const Digest&) const = default;
};

// Hashes for unordered containers: a digest's bits are as good as random.
struct DigestHash {
  std::size_t operator()(const Digest& digest) const noexcept;
};

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

// A value that was given to a FieldHasher, as text.
struct HashedField {
  std::string name;
  std::string value;
  bool operator==(const HashedField&) const = default;
};

// Computes the digest of an ordered list of named values. Every name and value is hashed with its
// length, so that two different lists are never the same bytes: ("ab", "c") differs from ("a",
// "bc"). Keeps the values, to tell people why two digests differ.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view name, std::string_view value);
  FieldHasher& add(std::string_view name, std::int64_t value);
  // Adds the digest of a long text, and keeps only that digest.
  FieldHasher& add_digest_of(std::string_view name, std::string_view text);

  Digest digest() const;
  const std::vector<HashedField>& fields() const { return fields_; }

 private:
  std::vector<HashedField> fields_;
};

// An XXH3 of 128 bits, in the canonical order of its bytes (XXH128_canonical_t). It detects damage
// at the speed of memory, but anyone can make other bytes with the same checksum. Use a SHA-256
// (digest.h) to withstand that.
struct Checksum {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Checksum&) const = default;
};

Checksum xxh3_128(std::span<const std::byte> bytes);

}  // namespace moejit
