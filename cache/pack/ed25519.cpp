// SPDX-License-Identifier: Apache-2.0
#include "cache/file_bytes.h"
#include "cache/pack/signature_block.h"
#include "cache/signature.h"

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

bool is_valid(const Signature& signature, const Digest& pack, const PublicKey& key) {
  const std::vector<std::byte> message = signed_message(pack, signature.key_id, signature.terms);
  const CryptoPP::ed25519Verifier verifier(key.bytes.data());
  return signature.key_id == key.id() &&
         verifier.VerifyMessage(octets(message), message.size(), signature.bytes.data(),
                                signature.bytes.size());
}

}  // namespace moejit::cache
