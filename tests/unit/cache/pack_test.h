// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <span>

namespace moejit::cache {

// Entries of different sizes, one without payload; a file to put packs into.
class PackTest : public CacheTest {
 protected:
  static Entry entry(int number) {
    return {.key = sha256(fmt::format("key {}", number)),
            .metadata = fmt::format("{{\"number\":{}}}", number),
            .payload = payload(static_cast<size_t>(number) * 37, static_cast<unsigned>(number))};
  }
  static std::vector<Entry> entries(int count) {
    std::vector<Entry> result;
    for (int i = 0; i < count; ++i) result.push_back(entry(i));
    return unique_entries(std::move(result)).value();
  }
  std::string file() const { return (folder_ / "some.moejitpack").string(); }
  std::vector<std::byte> write(int count) {
    auto bytes = encode_pack(entries(count), R"({"made":"here"})").value();
    EXPECT_TRUE(write_pack_file(file(), bytes));
    return bytes;
  }
  // As write_pack_file(), without waiting for the disk.
  void overwrite(std::span<const std::byte> bytes) {
    const FileDescriptor opened(::open(file().c_str(), O_WRONLY | O_TRUNC));
    EXPECT_EQ(write_all(opened.get(), bytes), 0);
  }
  void write_bytes(const std::vector<std::byte>& bytes) {
    EXPECT_TRUE(write_pack_file(file(), bytes));
  }
};

}  // namespace moejit::cache
