// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

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

}  // namespace moejit::cache
