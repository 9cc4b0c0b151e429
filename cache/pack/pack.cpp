// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"

#include "cache/file_bytes.h"
#include "cache/pack/pack_format.h"
#include "cache/pack/pack_index.h"
#include "cache/pack/signature_block.h"
#include "cache/trust.h"
#include "compiler/support/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

namespace moejit::cache {
namespace {

// Turns an error with a phrase into one with a sentence about the pack.
tl::unexpected<Error> about(const std::string& path, Error error) {
  error.message = fmt::format("pack {}: {}", path, error.message);
  return tl::make_unexpected(std::move(error));
}

}  // namespace

struct Pack::Impl {
  Result<void> open(const PackTrust& trust);
  Result<void> open_file();
  Result<void> read_front();
  Result<void> read_signatures();
  Result<void> check_trust(const PackTrust& trust) const;
  Result<Entry> read_entry(const PackRecord& record, bool compares_digest) const;

  std::string path;
  FileDescriptor file;
  struct stat status {};
  PackHeader header;
  Digest digest;
  std::string manifest;
  std::vector<Signature> signatures;
  std::unique_ptr<PackIndex> index;
  bool has_trusted_digest = false;  // whether a key of the ring signed its digest
};

Result<void> Pack::Impl::open_file() {
  // Non-blocking: a pipe of that name must not make us wait.
  file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file || ::fstat(file.get(), &status) != 0)
    return fail(Stage::kCache,
                errno == ENOENT ? ErrorCode::kFileNotFound : ErrorCode::kCacheUnusable,
                fmt::format("it cannot be opened: {}", errno_text(errno)));
  if (S_ISREG(status.st_mode)) return {};
  return fail(Stage::kCache, ErrorCode::kCacheUnusable, "it is no plain file");
}

Result<void> Pack::Impl::read_front() {
  std::array<std::byte, kPackHeaderBytes> bytes{};
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes < bytes.size())
    return corrupt(fmt::format("it has {} bytes, too few", file_bytes));
  MOEJIT_TRY(read_at(file, 0, bytes));
  MOEJIT_TRY_ASSIGN(header, decode_header(bytes));
  digest = pack_digest(bytes);
  if (header.file_bytes() != file_bytes)
    return corrupt(fmt::format("it has {} bytes, wanted {}", file_bytes, header.file_bytes()));
  std::vector<std::byte> front(header.index_offset() - kPackHeaderBytes);
  MOEJIT_TRY(read_at(file, kPackHeaderBytes, front));
  if (sha256(front) != header.front) return corrupt("its manifest or page table is damaged");
  const std::size_t table = header.table_offset() - kPackHeaderBytes;
  if (!is_zero(std::span(front).first(table).subspan(header.manifest_bytes)))
    return corrupt("its padding is not zero");
  manifest.assign(reinterpret_cast<const char*>(front.data()), header.manifest_bytes);
  index = std::make_unique<PackIndex>(file, header, std::span(front).subspan(table));
  return {};
}

Result<void> Pack::Impl::read_signatures() {
  std::vector<std::byte> bytes(header.signatures * kSignatureBlockBytes);
  MOEJIT_TRY(read_at(file, header.entries_end, bytes));
  for (std::size_t i = 0; i < header.signatures; ++i) {
    MOEJIT_TRY_ASSIGN(Signature signature, decode_signature(std::span(bytes).subspan(
                                               i * kSignatureBlockBytes, kSignatureBlockBytes)));
    signatures.push_back(signature);
  }
  return {};
}

Result<void> Pack::Impl::check_trust(const PackTrust& trust) const {
  if (trust.is_inspection) return {};
  if (trust.ring)
    return check_signatures(signatures, digest, *trust.ring, trust.now.value_or(::time(nullptr)));
  Distrust distrust = distrust_of(status, path);
  if (distrust.reason.empty()) return {};
  return fail(Stage::kCache, ErrorCode::kCacheUnusable, std::move(distrust.reason),
              distrust.hint + ", or give a key ring and a signed pack");
}

Result<void> Pack::Impl::open(const PackTrust& trust) {
  MOEJIT_TRY(open_file());
  // With a key ring the file may be anybody's, so its bytes are checked first.
  if (!trust.ring) MOEJIT_TRY(check_trust(trust));
  MOEJIT_TRY(read_front());
  MOEJIT_TRY(read_signatures());
  if (trust.ring) MOEJIT_TRY(check_trust(trust));
  has_trusted_digest = trust.ring.has_value();
  return {};
}

Result<Entry> Pack::Impl::read_entry(const PackRecord& record, bool compares_digest) const {
  const auto phrase = [&](Error error) {
    error.message = fmt::format("entry {}: {}", record.key.hex(), error.message);
    return tl::make_unexpected(std::move(error));
  };
  std::vector<std::byte> bytes(align64(record.bytes));
  if (auto read = read_at(file, record.offset, bytes); !read) return phrase(read.error());
  const auto entry_bytes = std::span<const std::byte>(bytes).first(record.bytes);
  auto entry = decode_entry(entry_bytes, record.key);
  if (!entry) return phrase(entry.error());
  // The entry is whole, but not the one that the index vouches for.
  if (compares_digest && entry_digest(header.version, entry_bytes) != record.digest)
    return phrase(corrupt("it is not the one that was packed").value());
  if (!is_zero(std::span(bytes).subspan(record.bytes)))
    return phrase(corrupt("its padding is not zero").value());
  return entry;
}

Result<std::unique_ptr<Pack>> Pack::open(const std::string& path, const PackTrust& trust) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (auto opened = impl->open(trust); !opened) return about(path, std::move(opened).error());
  return std::unique_ptr<Pack>(new Pack(std::move(impl)));
}

Pack::Pack(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pack::~Pack() = default;

Result<bool> Pack::contains(const Digest& key) const {
  auto record = impl_->index->find(key);
  if (!record) return about(path(), std::move(record).error());
  return *record != nullptr;
}

Result<std::optional<Entry>> Pack::get(const Digest& key) const {
  auto record = impl_->index->find(key);
  if (!record) return about(path(), std::move(record).error());
  if (*record == nullptr) return std::nullopt;
  auto entry = impl_->read_entry(**record, impl_->has_trusted_digest);
  if (!entry) return about(path(), std::move(entry).error());
  return std::move(*entry);
}

Result<std::vector<Pack::Place>> Pack::places() const {
  std::vector<Place> places;
  places.reserve(impl_->header.entries);
  PackRecord last;
  for (std::uint64_t page = 0; page < impl_->index->pages(); ++page) {
    auto records = impl_->index->page(page);
    if (!records) return about(path(), std::move(records).error());
    const bool is_next = page == 0 || follows(records->front(), last);
    if (!is_next) return about(path(), corrupt("its index is damaged").value());
    last = records->back();
    for (const PackRecord& record : *records)
      places.push_back({.key = record.key, .offset = record.offset, .bytes = record.bytes});
  }
  return places;
}

std::vector<std::string> Pack::verify() const {
  std::vector<std::string> problems;
  const PackHeader& header = impl_->header;
  std::uint64_t end = header.entries_offset();  // entries follow each other without gaps
  const Digest* last = nullptr;
  bool is_whole = true;
  for (std::uint64_t page = 0; page < impl_->index->pages(); ++page) {
    const auto records = impl_->index->page(page);
    if (!records) {
      problems.push_back(fmt::format("page {} of the index: {}", page, records.error().message));
      is_whole = false;
      continue;
    }
    for (const PackRecord& record : *records) {
      if (is_whole && (record.offset != end || (last != nullptr && record.key <= *last)))
        problems.push_back(fmt::format("entry {}: it is not where it should be", record.key.hex()));
      end = record.offset + align64(record.bytes);
      last = &record.key;
      if (const auto entry = impl_->read_entry(record, true); !entry)
        problems.push_back(entry.error().message);
    }
  }
  if (is_whole && end != header.entries_end) problems.emplace_back("there are bytes without entry");
  return problems;
}

const std::string& Pack::path() const { return impl_->path; }
const std::string& Pack::manifest() const { return impl_->manifest; }
std::int64_t Pack::size() const { return static_cast<std::int64_t>(impl_->header.entries); }
std::int64_t Pack::file_bytes() const {
  return static_cast<std::int64_t>(impl_->header.file_bytes());
}
const Digest& Pack::digest() const { return impl_->digest; }
const std::vector<Signature>& Pack::signatures() const { return impl_->signatures; }

Result<std::vector<std::byte>> sign_pack(std::span<const std::byte> pack, const Digest& digest,
                                         const PrivateKey& key, const SignatureTerms& terms) {
  MOEJIT_TRY_ASSIGN(PackHeader header,
                    decode_header(pack.first(std::min(pack.size(), kPackHeaderBytes))));
  if (header.file_bytes() != pack.size()) return corrupt("its lengths do not add up");
  if (pack_digest(pack) != digest) return corrupt("it has another content than was verified");
  const Signature added = sign(digest, terms, key);
  std::vector<Signature> signatures;
  for (std::size_t i = 0; i < header.signatures; ++i) {
    const std::size_t at = header.entries_end + i * kSignatureBlockBytes;
    MOEJIT_TRY_ASSIGN(const Signature signature,
                      decode_signature(pack.subspan(at, kSignatureBlockBytes)));
    if (signature.key_id != added.key_id) signatures.push_back(signature);
  }
  signatures.push_back(added);
  // The order of signing must not matter.
  std::ranges::sort(signatures, {}, &Signature::key_id);
  if (signatures.size() > kMostSignatures)
    return fail(Stage::kCache, ErrorCode::kInvalidValue,
                fmt::format("it has {} signatures, no more are possible", kMostSignatures));
  header.signatures = static_cast<std::uint32_t>(signatures.size());
  std::vector<std::byte> result = encode_header(header);
  const auto content = pack.subspan(kPackHeaderBytes, header.entries_end - kPackHeaderBytes);
  result.insert(result.end(), content.begin(), content.end());
  for (const Signature& signature : signatures) {
    const std::vector<std::byte> block = encode_signature(signature);
    result.insert(result.end(), block.begin(), block.end());
  }
  return result;
}

}  // namespace moejit::cache
