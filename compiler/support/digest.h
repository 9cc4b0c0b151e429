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

// A value that a FieldHasher was fed, as text.
struct HashedField {
  std::string name;
  std::string value;
  bool operator==(const HashedField&) const = default;
};

// Computes the digest of an ordered list of named values. Every name and value goes in with its
// length, so no two different lists are the same bytes: ("ab", "c") differs from ("a", "bc"). It
// remembers what it was fed, to tell people why two digests differ.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view name, std::string_view value);
  FieldHasher& add(std::string_view name, std::int64_t value);
  // Adds long material as its own digest, which is also what it remembers.
  FieldHasher& add_digest_of(std::string_view name, std::string_view text);

  Digest digest() const;
  const std::vector<HashedField>& fields() const { return fields_; }

 private:
  std::vector<HashedField> fields_;
};

}  // namespace moejit
