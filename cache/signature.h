// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Ed25519 signatures of packs. Keys are the PEM files that `openssl genpkey -algorithm ed25519` and
// `openssl pkey -pubout` write.
namespace moejit::cache {

struct PublicKey {
  std::array<std::uint8_t, 32> bytes{};
  Digest id() const;  // its SHA-256
  bool operator==(const PublicKey&) const = default;
};

struct PrivateKey {
  std::array<std::uint8_t, 32> bytes{};
  PublicKey public_key() const;
};

// Reads a PEM file. Errors: kFileNotFound, kFileRead; kInvalidFile: no unencrypted Ed25519 key.
Result<PrivateKey> read_private_key(const std::string& path);

// The signer's statements about a pack besides its content.
struct SignatureTerms {
  std::uint64_t serial = 0;     // counts packs of one purpose; a key ring may ask for a minimum
  std::int64_t expires_at = 0;  // end of its use, seconds since 1970, UTC; 0: none
  bool operator==(const SignatureTerms&) const = default;
};

struct Signature {
  Digest key_id;
  SignatureTerms terms;
  std::array<std::uint8_t, 64> bytes{};
  bool operator==(const Signature&) const = default;
};

// Signs a pack. Equal arguments give equal signatures.
Signature sign(const Digest& pack, const SignatureTerms& terms, const PrivateKey& key);
// Returns whether the key's owner signed. A signature is valid in one form only, and none is valid
// under a key of small order.
bool is_valid(const Signature& signature, const Digest& pack, const PublicKey& key);
// Returns whether the key is one of the few under which anybody can sign.
bool is_of_small_order(const PublicKey& key);

struct TrustedKey {
  PublicKey key;
  std::uint64_t least_serial = 0;  // older packs are refused
  std::string file;
};

// The keys whose packs are believed.
struct KeyRing {
  std::string path;
  std::vector<TrustedKey> keys;
};

// Reads a file with any number of public keys in PEM, or a folder of such files (*.pem). A line
// "least-serial: 7" before a key holds for that key; other text between keys is ignored. Files and
// folder have to belong to the user or to root, and nobody else may write to them. Errors:
// kFileNotFound, kFileRead; kInvalidFile: no key, or not Ed25519; kCacheUnusable: not to be
// trusted.
Result<KeyRing> read_key_ring(const std::string& path);

// Succeeds if one of the signatures is good. It is good if a key of the ring made it over this
// pack. It must not be expired at `now` (seconds since 1970), nor older than the ring allows. Else
// error kCacheUnusable. Its message is a phrase: what is wrong with the signature that came
// nearest.
Result<void> check_signatures(std::span<const Signature> signatures, const Digest& pack,
                              const KeyRing& ring, std::int64_t now);

// Returns "2027-01-31", in UTC. The second function returns the end of that day, or none if the
// text is no such date.
std::string date_text(std::int64_t seconds);
std::optional<std::int64_t> end_of_day(std::string_view date);

}  // namespace moejit::cache
