// SPDX-License-Identifier: Apache-2.0
#include "cache/file_bytes.h"
#include "cache/pack/signature_block.h"
#include "cache/signature.h"

#include <algorithm>
#include <cryptopp/xed25519.h>
#include <cstring>

namespace moejit::cache {
namespace {

// Returns the bytes to sign. They cannot be taken for anything else that is signed: they begin with
// a text of their own, and every field has a fixed length.
std::vector<std::byte> signed_message(const Digest& pack, const Digest& key_id,
                                      const SignatureTerms& terms) {
  constexpr std::string_view kContext = "moejit pack signature 1\n";
  std::vector<std::byte> message(kContext.size() + 2 * kDigestBytes + 16);
  const auto as_bytes = [](const Digest& digest) { return std::as_bytes(std::span(digest.bytes)); };
  std::size_t at = kContext.size();
  put_bytes(message, 0, std::as_bytes(std::span(kContext)));
  put_bytes(message, at, as_bytes(pack));
  put_bytes(message, at += kDigestBytes, as_bytes(key_id));
  put<std::uint64_t>(message, at += kDigestBytes, terms.serial);
  put<std::uint64_t>(message, at + 8, static_cast<std::uint64_t>(terms.expires_at));
  return message;
}

using Number = std::array<std::uint8_t, 32>;  // little-endian

// The order of the group, in which S of a signature has to be (RFC 8032, 5.1.7). Crypto++ takes any
// S of 253 bits, so that S plus the order would be another valid signature.
constexpr Number kOrder = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                           0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                           0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};

// The y of all points of order 1, 2, 4 and 8, in every encoding, the sign of x left out.
constexpr std::array<Number, 7> kSmallOrder = {
    {{0},
     {1},
     {0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4,
      0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6,
      0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
     {0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b,
      0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39,
      0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
     {0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
     {0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
     {0xee, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}}};

bool has_canonical_scalar(const Signature& signature) {
  const auto scalar = std::span(signature.bytes).last(kOrder.size());
  return std::lexicographical_compare(scalar.rbegin(), scalar.rend(), kOrder.rbegin(),
                                      kOrder.rend());
}

const CryptoPP::byte* octets(const std::vector<std::byte>& bytes) {
  return reinterpret_cast<const CryptoPP::byte*>(bytes.data());
}

}  // namespace

Digest PublicKey::id() const { return sha256(std::as_bytes(std::span(bytes))); }

PublicKey PrivateKey::public_key() const {
  const CryptoPP::ed25519Signer signer(bytes.data());
  const auto& key = dynamic_cast<const CryptoPP::ed25519PrivateKey&>(signer.GetPrivateKey());
  PublicKey result;
  std::memcpy(result.bytes.data(), key.GetPublicKeyBytePtr(), result.bytes.size());
  return result;
}

Signature sign(const Digest& pack, const SignatureTerms& terms, const PrivateKey& key) {
  const PublicKey public_key = key.public_key();
  Signature signature{.key_id = public_key.id(), .terms = terms};
  const std::vector<std::byte> message = signed_message(pack, signature.key_id, terms);
  const CryptoPP::ed25519Signer signer(public_key.bytes.data(), key.bytes.data());
  signer.SignMessage(CryptoPP::NullRNG(), octets(message), message.size(), signature.bytes.data());
  return signature;
}

bool is_of_small_order(const PublicKey& key) {
  Number y = key.bytes;
  y.back() &= 0x7fU;
  return std::ranges::count(kSmallOrder, y) > 0;
}

bool is_valid(const Signature& signature, const Digest& pack, const PublicKey& key) {
  if (!has_canonical_scalar(signature) || is_of_small_order(key)) return false;
  const std::vector<std::byte> message = signed_message(pack, signature.key_id, signature.terms);
  const CryptoPP::ed25519Verifier verifier(key.bytes.data());
  return signature.key_id == key.id() &&
         verifier.VerifyMessage(octets(message), message.size(), signature.bytes.data(),
                                signature.bytes.size());
}

}  // namespace moejit::cache
