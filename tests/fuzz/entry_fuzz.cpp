// SPDX-License-Identifier: Apache-2.0
// A cache entry of any bytes, as it is and with a right checksum and the right key, which random
// bytes never have. What is accepted has to be what its content is written as.
#include "cache/entry.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

constexpr std::size_t kKeyAt = 16, kKeyBytes = 32;

void check(std::span<const std::byte> file) {
  moejit::Digest key;
  if (file.size() >= kKeyAt + kKeyBytes)
    std::ranges::copy(file.subspan(kKeyAt, kKeyBytes),
                      std::as_writable_bytes(std::span(key.bytes)).begin());
  const auto entry = moejit::cache::decode_entry(file, key);
  if (!entry) return;
  const auto again = moejit::cache::encode_entry(entry->key, entry->metadata, entry->payload);
  if (!std::ranges::equal(again, file)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> file(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), file.begin());
  check(file);
  if (size < 32) return 0;
  const moejit::Digest digest = moejit::sha256(std::span(file).first(size - 32));
  std::ranges::copy(std::as_bytes(std::span(digest.bytes)), file.end() - 32);
  check(file);
  return 0;
}
