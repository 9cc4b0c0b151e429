// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moejit {

// An XXH3 of 128 bits, in the canonical order of its bytes (XXH128_canonical_t). It detects damage
// at the speed of memory, but anyone can make other bytes with the same checksum. Use a SHA-256
// (digest.h) to withstand that.
struct Checksum {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Checksum&) const = default;
};

Checksum xxh3_128(std::span<const std::byte> bytes);

}  // namespace moejit
