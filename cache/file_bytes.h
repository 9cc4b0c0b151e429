// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

// Reads and writes fields of files, whatever the machine's byte order. The caller has checked that
// they lie inside.
namespace moejit::cache {

template <typename Integer>
void put(std::span<std::byte> file, std::size_t offset, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    file[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

template <typename Integer>
Integer take(std::span<const std::byte> file, std::size_t offset) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value |= static_cast<Integer>(static_cast<Integer>(file[offset + i]) << (8 * i));
  return value;
}

inline void put_bytes(std::span<std::byte> file, std::size_t offset,
                      std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(file.data() + offset, bytes.data(), bytes.size());
}

inline constexpr std::size_t kDigestBytes = sizeof(Digest::bytes);

inline std::span<const std::byte> bytes_of(const Digest& digest) {
  return std::as_bytes(std::span(digest.bytes));
}

inline Digest decode_digest(std::span<const std::byte> bytes) {
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes.data(), digest.bytes.size());
  return digest;
}

inline bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Returns error kCacheCorrupt with a phrase about a file ("its checksum does not match").
inline tl::unexpected<Error> corrupt(std::string phrase) {
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt, std::move(phrase));
}

}  // namespace moejit::cache
