// SPDX-License-Identifier: Apache-2.0
#include "cache/pack/signature_block.h"

#include "cache/little_endian.h"
#include "cache/pack/pack_format.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace moejit::cache {
namespace {

constexpr std::string_view kMagic{"moejsg\x1a\n", 8};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kVersionAt = 8, kKeyIdAt = 16, kSerialAt = 48, kExpiresAt = 56,
                      kSignatureAt = 64, kChecksumAt = 160;

}  // namespace

std::vector<std::byte> encode_signature(const Signature& signature) {
  std::vector<std::byte> block(kSignatureBlockBytes);
  put_bytes(block, 0, std::as_bytes(std::span(kMagic)));
  put<std::uint32_t>(block, kVersionAt, kFormatVersion);
  put_bytes(block, kKeyIdAt, bytes_of(signature.key_id));
  put<std::uint64_t>(block, kSerialAt, signature.terms.serial);
  put<std::uint64_t>(block, kExpiresAt, static_cast<std::uint64_t>(signature.terms.expires_at));
  put_bytes(block, kSignatureAt, std::as_bytes(std::span(signature.bytes)));
  put_bytes(block, kChecksumAt, bytes_of(sha256(std::span(block).first(kChecksumAt))));
  return block;
}

Result<Signature> decode_signature(std::span<const std::byte> block) {
  Signature signature{
      .key_id = decode_digest(block.subspan(kKeyIdAt)),
      .terms = {.serial = take<std::uint64_t>(block, kSerialAt),
                .expires_at = static_cast<std::int64_t>(take<std::uint64_t>(block, kExpiresAt))}};
  std::memcpy(signature.bytes.data(), block.data() + kSignatureAt, signature.bytes.size());
  if (std::ranges::equal(block, encode_signature(signature))) return signature;
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt, "one of its signatures is damaged");
}

}  // namespace moejit::cache
