// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/signature.h"

#include <cstddef>
#include <span>
#include <vector>

namespace moejit::cache {

// Returns the bytes of a signature in a pack. Integers are little-endian:
//
//   offset size
//    0      8   magic "moejsg\x1a\n"
//    8      4   format version, 1
//   12      4   zero
//   16     32   SHA-256 of the public key
//   48      8   serial
//   56      8   seconds since 1970, UTC, until when the pack may be used; 0: no end
//   64     64   Ed25519 signature
//  128     32   zero
//  160     32   SHA-256 of everything before
//
// 104 bytes are signed: "moejit pack signature 1\n", the pack's digest, and bytes 16 to 63.
std::vector<std::byte> encode_signature(const Signature& signature);
// Returns the signature in a block. Error kCacheCorrupt, its message a phrase.
Result<Signature> decode_signature(std::span<const std::byte> block);

}  // namespace moejit::cache
