// SPDX-License-Identifier: Apache-2.0
// A file of keys of any bytes. A ring has keys, all of this file; a private key has a public one,
// and what it signs is good.
#include "cache/signature.h"
#include "tests/fuzz/memory_file.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit;
  using namespace moejit::cache;
  const std::string& path = testing::file_with(std::as_bytes(std::span(data, size)));
  const auto ring = read_key_ring(path);
  if (ring && (ring->keys.empty() || !std::ranges::all_of(ring->keys, [&](const TrustedKey& key) {
                 return key.file == path;
               })))
    std::abort();
  if (const auto key = read_private_key(path)) {
    const Digest pack = sha256("a pack");
    const Signature signature = sign(pack, {.serial = 1}, *key);
    if (!is_valid(signature, pack, key->public_key())) std::abort();
  }
  return 0;
}
