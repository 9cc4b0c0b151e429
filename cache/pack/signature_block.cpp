// SPDX-License-Identifier: Apache-2.0
#include "cache/pack/signature_block.h"

#include "cache/file_bytes.h"
#include "cache/pack/pack_format.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace moejit::cache {
namespace {

constexpr std::string_view kSignatureMagic{"moejsg\x1a\n", 8};
constexpr std::uint32_t kSignatureVersion = 1;
constexpr std::size_t kSignatureVersionAt = 8, kSignatureKeyIdAt = 16, kSignatureSerialAt = 48,
                      kSignatureExpiresAt = 56, kSignatureBytesAt = 64, kSignatureChecksumAt = 160;

}  // namespace

std::vector<std::byte> encode_signature(const Signature& signature) {
  std::vector<std::byte> block(kSignatureBlockBytes);
  put_bytes(block, 0, std::as_bytes(std::span(kSignatureMagic)));
  put<std::uint32_t>(block, kSignatureVersionAt, kSignatureVersion);
  put_bytes(block, kSignatureKeyIdAt, bytes_of(signature.key_id));
  put<std::uint64_t>(block, kSignatureSerialAt, signature.terms.serial);
  put<std::uint64_t>(block, kSignatureExpiresAt,
                     static_cast<std::uint64_t>(signature.terms.expires_at));
  put_bytes(block, kSignatureBytesAt, std::as_bytes(std::span(signature.bytes)));
  put_bytes(block, kSignatureChecksumAt,
            bytes_of(sha256(std::span(block).first(kSignatureChecksumAt))));
  return block;
}

Result<Signature> decode_signature(std::span<const std::byte> block) {
  Signature signature{.key_id = decode_digest(block.subspan(kSignatureKeyIdAt)),
                      .terms = {.serial = take<std::uint64_t>(block, kSignatureSerialAt),
                                .expires_at = static_cast<std::int64_t>(
                                    take<std::uint64_t>(block, kSignatureExpiresAt))}};
  std::memcpy(signature.bytes.data(), block.data() + kSignatureBytesAt, signature.bytes.size());
  if (std::ranges::equal(block, encode_signature(signature))) return signature;
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt, "one of its signatures is damaged");
}

}  // namespace moejit::cache
