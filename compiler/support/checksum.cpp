// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/checksum.h"

#include <bit>

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
