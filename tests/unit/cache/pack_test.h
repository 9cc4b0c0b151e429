// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <functional>
#include <span>
#include <unistd.h>

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
  // Calls the function with every byte of the file flipped in turn. In place: to write a file anew
  // may wait for the disk.
  void with_every_byte_flipped(const std::function<void(size_t)>& check) {
    const auto bytes = read_file(file()).value();
    const FileDescriptor opened(::open(file().c_str(), O_WRONLY));
    for (size_t at = 0; at < bytes.size(); ++at) {
      const std::byte flipped = bytes[at] ^ std::byte{0x04};
      ASSERT_EQ(::pwrite(opened.get(), &flipped, 1, static_cast<off_t>(at)), 1);
      check(at);
      ASSERT_EQ(::pwrite(opened.get(), &bytes[at], 1, static_cast<off_t>(at)), 1);
    }
  }
  void set_size(size_t bytes) {
    ASSERT_EQ(::truncate(file().c_str(), static_cast<off_t>(bytes)), 0);
  }
  void write_bytes(const std::vector<std::byte>& bytes) {
    EXPECT_TRUE(write_pack_file(file(), bytes));
  }
};

}  // namespace moejit::cache
