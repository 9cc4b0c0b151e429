// SPDX-License-Identifier: Apache-2.0
#include "cache/signature.h"
#include "cache/trust.h"
#include "compiler/support/file.h"
#include "compiler/support/plain_text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cryptopp/base64.h>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/stat.h>
#include <system_error>

namespace moejit::cache {
namespace {

constexpr std::int64_t kLargestKeyFile = 1 << 20;
constexpr std::size_t kKeyBytes = 32;
// The bytes before the key's 32 in the DER of RFC 8410: the algorithm Ed25519 and lengths.
constexpr std::string_view kPublicPrefix{"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", 12};
constexpr std::string_view kPrivatePrefix{
    "\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", 16};

tl::unexpected<Error> invalid(const std::string& path, std::string_view reason,
                              std::string hint = {}) {
  return fail(Stage::kFile, ErrorCode::kInvalidFile, fmt::format("{}: {}", path, reason),
              std::move(hint));
}

// A block of PEM and the text before it.
struct PemBlock {
  std::string_view before;
  std::string_view base64;
};

// Returns the next block with this label and moves `text` behind it.
std::optional<PemBlock> next_block(std::string_view& text, std::string_view label) {
  const std::string begin = fmt::format("-----BEGIN {}-----", label);
  const std::string end = fmt::format("-----END {}-----", label);
  const std::size_t begins = text.find(begin);
  if (begins == std::string_view::npos) return std::nullopt;
  const std::size_t ends = text.find(end, begins);
  if (ends == std::string_view::npos) return std::nullopt;
  const std::size_t content = begins + begin.size();
  const PemBlock block{text.substr(0, begins), text.substr(content, ends - content)};
  text.remove_prefix(ends + end.size());
  return block;
}

// Returns the key in a block, or none if it is no Ed25519 key.
std::optional<std::array<std::uint8_t, kKeyBytes>> key_of(const PemBlock& block,
                                                          std::string_view prefix) {
  std::string der;
  const CryptoPP::StringSource decoded(reinterpret_cast<const CryptoPP::byte*>(block.base64.data()),
                                       block.base64.size(), true,
                                       new CryptoPP::Base64Decoder(new CryptoPP::StringSink(der)));
  if (der.size() != prefix.size() + kKeyBytes || !der.starts_with(prefix)) return std::nullopt;
  std::array<std::uint8_t, kKeyBytes> key{};
  std::memcpy(key.data(), der.data() + prefix.size(), key.size());
  return key;
}

// Returns the N of a line "least-serial: N"; none for any other line.
std::optional<std::uint64_t> serial_of(std::string_view line) {
  constexpr std::string_view kName = "least-serial:", kBlanks = " \t\r";
  if (!line.starts_with(kName)) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks, kName.size()), line.size()));
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  std::uint64_t serial = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), serial);
  if (error != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return serial;
}

// Returns the largest least-serial in the text before a key, none if there is none. A line that
// looks like one but is not is an error: a guard with a typing error would guard nothing.
Result<std::optional<std::uint64_t>> least_serial_of(const std::string& path,
                                                     std::string_view text) {
  std::optional<std::uint64_t> least;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (ascii_lower(line).find("serial") == std::string::npos) continue;
    const auto serial = serial_of(line);
    if (!serial)
      return invalid(path,
                     fmt::format("got the line \"{}\", wanted least-serial: and a number", line),
                     "leave the word serial out of all other lines");
    least = std::max(least.value_or(0), *serial);
  }
  return least;
}

// Returns a file's text, if owner and mode are right, for the file and for all folders on the way
// to it. A key ring is the root of trust, and another ring in its place would be the wrong one.
Result<std::string> read_trusted(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail(
        Stage::kFile, ErrorCode::kFileNotFound,
        fmt::format("key file {}: {}", path, file ? "it is no plain file" : errno_text(errno)));
  if (const Distrust distrust = distrust_of(status, path); !distrust.reason.empty())
    return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                fmt::format("key file {}: {}", path, distrust.reason), distrust.hint);
  if (const Distrust distrust = distrust_of_way_to(path); !distrust.reason.empty())
    return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                fmt::format("key file {}: {}", path, distrust.reason), distrust.hint);
  std::vector<std::byte> bytes;
  if (const int error = read_all(file.get(), kLargestKeyFile, bytes); error != 0)
    return fail(Stage::kFile, ErrorCode::kFileRead,
                fmt::format("key file {}: {}", path, errno_text(error)));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<void> add_keys(const std::string& path, std::vector<TrustedKey>& keys) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_trusted(path));
  std::string_view rest = text;
  const std::size_t before = keys.size();
  while (const auto block = next_block(rest, "PUBLIC KEY")) {
    const auto key = key_of(*block, kPublicPrefix);
    if (!key)
      return invalid(path, "a public key in it is not of Ed25519",
                     "make keys with: openssl genpkey -algorithm ed25519");
    if (is_of_small_order({*key}))
      return invalid(path, "a public key in it is of small order: anybody can sign for it",
                     "make keys with: openssl genpkey -algorithm ed25519");
    MOEJIT_TRY_ASSIGN(const auto serial, least_serial_of(path, block->before));
    keys.push_back({.key = {*key}, .least_serial = serial.value_or(0), .file = path});
  }
  MOEJIT_TRY_ASSIGN(const auto behind, least_serial_of(path, rest));
  if (behind)
    return invalid(path, "a line least-serial: is behind the last key, wanted it before its key");
  if (keys.size() > before) return {};
  return invalid(path, "there is no public key in it",
                 "openssl pkey -in private.pem -pubout writes one");
}

Result<std::vector<std::string>> key_files(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("key ring {}: {}", path, errno_text(errno)));
  if (!S_ISDIR(status.st_mode)) return std::vector{path};
  if (const Distrust distrust = distrust_of(status, path); !distrust.reason.empty())
    return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                fmt::format("key ring {}: {}", path, distrust.reason), distrust.hint);
  std::vector<std::string> files;
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(path, error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error))
    if (file->path().extension() == ".pem") files.push_back(file->path().string());
  if (error)
    return fail(Stage::kFile, ErrorCode::kFileRead,
                fmt::format("key ring {}: {}", path, error.message()));
  std::ranges::sort(files);
  return files;
}

std::string short_id(const Digest& key_id) { return key_id.hex().substr(0, 16); }

}  // namespace

Result<PrivateKey> read_private_key(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path));
  std::string_view rest = text;
  const auto block = next_block(rest, "PRIVATE KEY");
  const auto key = block ? key_of(*block, kPrivatePrefix) : std::nullopt;
  if (!key)
    return invalid(path, "there is no private key of Ed25519 in it",
                   "make one with: openssl genpkey -algorithm ed25519");
  return PrivateKey{*key};
}

Result<KeyRing> read_key_ring(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::string> files, key_files(path));
  KeyRing ring{.path = path, .keys = {}};
  for (const std::string& file : files) MOEJIT_TRY(add_keys(file, ring.keys));
  if (ring.keys.empty()) return invalid(path, "there is no file *.pem in this key ring");
  return ring;
}

Result<void> check_signatures(std::span<const Signature> signatures, const Digest& pack,
                              const KeyRing& ring, std::int64_t now) {
  const auto refuse = [](std::string reason, std::string hint = {}) {
    return fail(Stage::kCache, ErrorCode::kCacheUnusable, std::move(reason), std::move(hint));
  };
  if (signatures.empty())
    return refuse("it has no signature", "sign it with: moejit pack sign, or give no key ring");
  std::string reason = fmt::format("it is signed with key {}, which is not in the key ring {}",
                                   short_id(signatures.front().key_id), ring.path);
  for (const Signature& signature : signatures) {
    const auto known = std::ranges::find(ring.keys, signature.key_id,
                                         [](const TrustedKey& key) { return key.key.id(); });
    if (known == ring.keys.end()) continue;
    const SignatureTerms& terms = signature.terms;
    if (!is_valid(signature, pack, known->key))
      reason = fmt::format("its signature by key {} does not match: pack or signature was altered",
                           short_id(signature.key_id));
    else if (terms.expires_at != 0 && now > terms.expires_at)
      reason = fmt::format("its signature by key {} expired on {}", short_id(signature.key_id),
                           date_text(terms.expires_at));
    else if (terms.serial < known->least_serial)
      reason = fmt::format("its serial is {}, but {} wants {} or later from key {}", terms.serial,
                           known->file, known->least_serial, short_id(signature.key_id));
    else
      return {};
  }
  return refuse(std::move(reason));
}

std::string date_text(std::int64_t seconds) {
  std::tm date{};
  const std::time_t time = seconds;
  if (::gmtime_r(&time, &date) == nullptr) return fmt::format("second {}", seconds);
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
}

std::optional<std::int64_t> end_of_day(std::string_view date) {
  std::tm parsed{};
  const std::string text(date);
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d", &parsed);
  if (end == nullptr || *end != '\0') return std::nullopt;
  parsed.tm_hour = 23;
  parsed.tm_min = 59;
  parsed.tm_sec = 59;
  const std::int64_t seconds = ::timegm(&parsed);
  // strptime() also takes 31 February.
  return seconds > 0 && date_text(seconds) == date ? std::optional(seconds) : std::nullopt;
}

}  // namespace moejit::cache
