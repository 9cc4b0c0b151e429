// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include "compiler/support/digest.h"
#include "tests/unit/cache/cache_test.h"

#include <gtest/gtest.h>

namespace moejit::cache {
namespace {

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> small_file() {
  return encode_entry(kKey, R"({"entry":"f"})", bytes_of_text("machine code"));
}

// Puts a right checksum on a file that was changed on purpose.
std::vector<std::byte> resealed(std::vector<std::byte> file) {
  const Checksum checksum = xxh3_128(std::span(file).first(file.size() - 16));
  std::ranges::copy(std::as_bytes(std::span(checksum.bytes)), file.end() - 16);
  return file;
}

std::string problem_of(const std::vector<std::byte>& file) {
  const auto entry = decode_entry(file, kKey);
  return entry ? "none" : entry.error().message;
}

TEST(Entry, IsReadBackAsItWasWritten) {
  const auto entry = decode_entry(small_file(), kKey);
  ASSERT_TRUE(entry);
  EXPECT_EQ(*entry, (Entry{kKey, R"({"entry":"f"})", bytes_of_text("machine code")}));
}

TEST(Entry, MayBeEmpty) {
  const auto entry = decode_entry(encode_entry(kKey, "", {}), kKey);
  ASSERT_TRUE(entry);
  EXPECT_EQ(*entry, (Entry{kKey, "", {}}));
}

TEST(Entry, BeginsItsPayloadAt64Bytes) {
  const std::vector<std::byte> file = small_file();
  EXPECT_EQ(std::vector<std::byte>(file.begin() + 128, file.begin() + 140),
            bytes_of_text("machine code"));
}

// Files of this format exist: the bytes must never change without a new version. The digest is of
// what tests/support/entry_file.py makes of the same entry.
TEST(Entry, HasTheBytesOfFormatVersion2) {
  EXPECT_EQ(sha256(small_file()).hex(),
            "fc4159e2b1259996390339a07ccb75a6913f74a074a050fb6dd5b4c1c9dc5309");
}

TEST(Entry, NoticesEveryFlippedBit) {
  const std::vector<std::byte> good = small_file();
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::vector<std::byte> bad = good;
    bad[i / 8] ^= std::byte(1 << (i % 8));
    ASSERT_FALSE(decode_entry(bad, kKey)) << "bit " << i;
  }
}

TEST(Entry, NoticesEveryTruncation) {
  const std::vector<std::byte> good = small_file();
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    ASSERT_FALSE(decode_entry(std::span(good).first(bytes), kKey)) << bytes << " bytes";
}

TEST(Entry, NoticesAppendedBytes) {
  std::vector<std::byte> file = small_file();
  file.push_back(std::byte{0});
  EXPECT_EQ(problem_of(file), "its checksum does not match");
}

TEST(Entry, MustBeForTheKeyAskedFor) {
  const auto entry = decode_entry(small_file(), sha256("other"));
  ASSERT_FALSE(entry);
  EXPECT_EQ(entry.error().code, ErrorCode::kCacheCorrupt);
  EXPECT_EQ(entry.error().message, "it was written for another key");
}

TEST(Entry, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(problem_of({}), "it has 0 bytes, too few");
  EXPECT_EQ(problem_of(std::vector<std::byte>(200)), "it does not begin as a cache entry does");
}

TEST(Entry, RefusesMadeUpHeadersWithARightChecksum) {
  std::vector<std::byte> file = small_file();
  file[8] = std::byte{3};
  EXPECT_EQ(problem_of(resealed(file)), "its format version is 3, wanted 2");
  for (const size_t offset : {56u, 63u, 64u, 71u, 72u, 79u}) {
    file = small_file();
    file[offset] = std::byte{0xFF};
    EXPECT_EQ(problem_of(resealed(file)), "its lengths do not add up") << offset;
  }
  file = small_file();
  file[48] = std::byte{1};
  EXPECT_EQ(problem_of(resealed(file)), "its header has unknown flags");
  file = small_file();
  file[100] = std::byte{1};
  EXPECT_EQ(problem_of(resealed(file)), "its padding is not zero");
}

}  // namespace
}  // namespace moejit::cache
