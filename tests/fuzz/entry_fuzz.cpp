// SPDX-License-Identifier: Apache-2.0
// A cache entry of any bytes, as it is and with the right checksum of each format and the right
// key, which random bytes never have. What is accepted has to be what its content is written as.
#include "cache/entry.h"
#include "compiler/support/digest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

constexpr std::size_t kVersionAt = 8, kKeyAt = 16, kKeyBytes = 32;

void check(std::span<const std::byte> file) {
  moejit::Digest key;
  if (file.size() >= kKeyAt + kKeyBytes)
    std::ranges::copy(file.subspan(kKeyAt, kKeyBytes),
                      std::as_writable_bytes(std::span(key.bytes)).begin());
  const auto entry = moejit::cache::decode_entry(file, key);
  if (!entry) return;
  auto again = moejit::cache::encode_entry(entry->key, entry->metadata, entry->payload);
  if (file[kVersionAt] == std::byte{1}) {  // written in another way, with another checksum
    again[kVersionAt] = std::byte{1};
    again.resize(again.size() - sizeof(moejit::Checksum::bytes));
    file = file.first(file.size() - sizeof(moejit::Digest::bytes));
  }
  if (!std::ranges::equal(again, file)) std::abort();
}

template <typename Hash>
void check_sealed(std::vector<std::byte> file, const Hash& hash) {
  constexpr std::size_t bytes = sizeof(decltype(hash(std::span<const std::byte>()))::bytes);
  if (file.size() < bytes) return;
  const auto sum = hash(std::span<const std::byte>(file).first(file.size() - bytes));
  std::ranges::copy(std::as_bytes(std::span(sum.bytes)),
                    file.end() - static_cast<std::ptrdiff_t>(bytes));
  check(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> file(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), file.begin());
  check(file);
  const auto digest = [](std::span<const std::byte> bytes) { return moejit::sha256(bytes); };
  check_sealed(file, moejit::xxh3_128);
  check_sealed(file, digest);
  return 0;
}
