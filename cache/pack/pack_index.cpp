// SPDX-License-Identifier: Apache-2.0
#include "cache/pack/pack_index.h"

#include "cache/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <fmt/core.h>
#include <unistd.h>

namespace moejit::cache {

Result<void> read_at(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(Stage::kCache, ErrorCode::kFileRead,
                  fmt::format("it cannot be read: {}", errno_text(errno)));
    if (got == 0) return fail(Stage::kCache, ErrorCode::kCacheCorrupt, "it is shorter than it was");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

PackIndex::PackIndex(const FileDescriptor& file, const PackHeader& header,
                     std::span<const std::byte> table)
    : file_(file), header_(header), pages_(header.pages()) {
  first_keys_.reserve(header.pages());
  checksums_.reserve(header.pages());
  for (std::uint64_t page = 0; page < header.pages(); ++page) {
    const auto row = table.subspan(page * kTableRowBytes, kTableRowBytes);
    first_keys_.push_back(decode_digest(row));
    checksums_.push_back(decode_digest(row.subspan(sizeof(Digest::bytes))));
  }
}

PackIndex::~PackIndex() {
  for (const std::atomic<Page*>& page : pages_) delete page.load();
}

Result<std::unique_ptr<PackIndex::Page>> PackIndex::read_page(std::uint64_t page) const {
  const auto corrupt = [] {
    return fail(Stage::kCache, ErrorCode::kCacheCorrupt, "its index is damaged");
  };
  std::array<std::byte, kRecordsPerPage * kRecordBytes + 64> buffer;
  const std::span bytes =
      std::span(buffer).first(header_.page_end(page) - header_.page_offset(page));
  MOEJIT_TRY(read_at(file_, header_.page_offset(page), bytes));
  if (sha256(bytes) != checksums_[page]) return corrupt();
  auto read = std::make_unique<Page>();
  read->count = header_.records_of(page);
  for (std::size_t i = 0; i < read->count; ++i) {
    read->records[i] = decode_record(bytes.subspan(i * kRecordBytes));
    // The digest is right, but the writer of the index may have been wrong.
    if (!is_possible(read->records[i], header_) ||
        (i > 0 && !follows(read->records[i], read->records[i - 1])))
      return corrupt();
  }
  if (read->records[0].key != first_keys_[page]) return corrupt();
  if (!is_zero(bytes.subspan(read->count * kRecordBytes))) return corrupt();
  return read;
}

Result<std::span<const PackRecord>> PackIndex::page(std::uint64_t page) const {
  const Page* known = pages_[page].load(std::memory_order_acquire);
  if (known == nullptr) {
    MOEJIT_TRY_ASSIGN(std::unique_ptr<Page> read, read_page(page));
    Page* expected = nullptr;  // another thread may have been faster
    if (pages_[page].compare_exchange_strong(expected, read.get(), std::memory_order_acq_rel))
      known = read.release();
    else
      known = expected;
  }
  return std::span(known->records).first(known->count);
}

Result<const PackRecord*> PackIndex::find(const Digest& key) const {
  const auto after = std::ranges::upper_bound(first_keys_, key);
  if (after == first_keys_.begin()) return nullptr;
  MOEJIT_TRY_ASSIGN(const std::span<const PackRecord> records,
                    page(static_cast<std::uint64_t>(after - first_keys_.begin()) - 1));
  const auto found = std::ranges::lower_bound(records, key, {}, &PackRecord::key);
  return found != records.end() && found->key == key ? &*found : nullptr;
}

}  // namespace moejit::cache
