// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moejit {

// An XXH3 of 128 bits, in the canonical order of its bytes (XXH128_canonical_t). It tells damage,
// at the speed of memory; whoever wants other bytes with the same checksum can make them. What has
// to withstand that is a SHA-256 (digest.h).
struct Checksum {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Checksum&) const = default;
};

Checksum xxh3_128(std::span<const std::byte> bytes);

}  // namespace moejit
