// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/pack/pack_format.h"
#include "compiler/support/error.h"
#include "compiler/support/file.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace moejit::cache {

// Reads `bytes.size()` bytes at an offset. Error kCacheCorrupt if the file ends too early (it has
// become shorter), kFileRead with the system's reason; messages are phrases.
Result<void> read_at(const FileDescriptor& file, std::uint64_t offset, std::span<std::byte> bytes);

// The index of an open pack. Pages are read and verified at their first use and stay in memory, 80
// bytes an entry. Any thread may call any function.
class PackIndex {
 public:
  // `table` is the verified page table of the header.
  PackIndex(const FileDescriptor& file, const PackHeader& header, std::span<const std::byte> table);
  ~PackIndex();
  PackIndex(const PackIndex&) = delete;
  PackIndex& operator=(const PackIndex&) = delete;

  // Returns the record of a key, or null if there is none. Allocates nothing once the page is
  // known.
  Result<const PackRecord*> find(const Digest& key) const;
  // Returns the records of a page. Each is possible and follows the one before; the first is as the
  // table says. Between two pages the caller has to check this.
  Result<std::span<const PackRecord>> page(std::uint64_t page) const;
  std::uint64_t pages() const { return first_keys_.size(); }

 private:
  struct Page {
    std::array<PackRecord, kRecordsPerPage> records;
    std::size_t count = 0;
  };
  Result<std::unique_ptr<Page>> read_page(std::uint64_t page) const;

  const FileDescriptor& file_;
  PackHeader header_;
  std::vector<Digest> first_keys_;  // of each page; a lookup searches these first
  std::vector<Digest> checksums_;
  mutable std::vector<std::atomic<Page*>> pages_;
};

}  // namespace moejit::cache
