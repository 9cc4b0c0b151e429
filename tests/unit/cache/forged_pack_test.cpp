// SPDX-License-Identifier: Apache-2.0
// Packs that somebody made up: every digest is right, and what it vouches for is not.
#include "cache/file_bytes.h"
#include "cache/pack/pack_format.h"
#include "tests/unit/cache/pack_test.h"

#include <functional>
#include <limits>

namespace moejit::cache {
namespace {

using Bytes = std::vector<std::byte>;

class ForgedPack : public PackTest {
 protected:
  // Makes all digests fit what is there now.
  static void seal(Bytes& pack, PackHeader header) {
    for (std::uint64_t page = 0; page < header.pages(); ++page) {
      const auto bytes = std::span(pack).subspan(header.page_offset(page),
                                                 header.page_end(page) - header.page_offset(page));
      const std::size_t row = header.table_offset() + page * kTableRowBytes;
      put_bytes(pack, row, bytes.first(32));
      put_bytes(pack, row + 32, bytes_of(sha256(bytes)));
    }
    header.front = sha256(std::span<const std::byte>(pack).subspan(
        kPackHeaderBytes, header.index_offset() - kPackHeaderBytes));
    put_bytes(pack, 0, encode_header(header));
  }
  // A pack whose record `index` was changed. Whatever it says, no entry comes out wrong.
  void expect_caught(std::size_t index, const std::function<void(PackRecord&)>& change) {
    Bytes pack = write(100);
    const PackHeader header = decode_header(std::span(pack).first(kPackHeaderBytes)).value();
    const auto bytes = std::span(pack).subspan(header.index_offset() + index * kRecordBytes);
    PackRecord record = decode_record(bytes);
    change(record);
    encode_record(record, bytes);
    seal(pack, header);
    write_bytes(pack);
    const auto opened = Pack::open(file());
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_FALSE((*opened)->verify().empty());
    for (const Entry& wanted : entries(100)) {
      const auto got = (*opened)->get(wanted.key);
      EXPECT_TRUE(!got || !*got || **got == wanted);
    }
  }
};

TEST_F(ForgedPack, RecordsThatPointElsewhereAreCaught) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63, kMost, kMost - 63})
    expect_caught(50, [&](PackRecord& record) { record.offset = offset; });
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{111}, std::uint64_t{1} << 40,
                                    std::uint64_t{1} << 26, kMost, kMost - 62})
    expect_caught(50, [&](PackRecord& record) { record.bytes = bytes; });
  expect_caught(50, [](PackRecord& record) { record.offset += 64; });
  expect_caught(99, [](PackRecord& record) { record.bytes += 1; });
}

TEST_F(ForgedPack, KeysOutOfOrderAreCaught) {
  expect_caught(50, [](PackRecord& record) { record.key = {}; });
  expect_caught(64, [](PackRecord& record) { record.key = {}; });  // first of its page
  expect_caught(3, [](PackRecord& record) { record.key.bytes.fill(0xff); });
}

// Else keys before the first one of a page would be looked for in the page before it.
TEST_F(ForgedPack, FirstKeysOfPagesThatTheirPagesLackAreCaught) {
  Bytes pack = write(100);
  PackHeader header = decode_header(std::span(pack).first(kPackHeaderBytes)).value();
  pack[header.table_offset() + kTableRowBytes + 31] ^= std::byte{1};
  header.front = sha256(std::span<const std::byte>(pack).subspan(
      kPackHeaderBytes, header.index_offset() - kPackHeaderBytes));
  put_bytes(pack, 0, encode_header(header));
  write_bytes(pack);
  const auto opened = Pack::open(file());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE((*opened)->verify().empty());
}

TEST_F(ForgedPack, DigestsOfOtherEntriesAreCaught) {
  expect_caught(7, [](PackRecord& record) { record.digest = sha256("another"); });
}

// Else a small file would unpack to any size.
TEST_F(ForgedPack, EntriesThatShareBytesAreCaught) {
  const auto places_of = [&](std::size_t index) {
    Bytes pack = write(100);
    const PackHeader header = decode_header(std::span(pack).first(kPackHeaderBytes)).value();
    const auto records = std::span(pack).subspan(header.index_offset());
    PackRecord record = decode_record(records.subspan(index * kRecordBytes));
    const PackRecord before = decode_record(records.subspan((index - 1) * kRecordBytes));
    record.offset = before.offset;
    record.bytes = before.bytes;
    encode_record(record, records.subspan(index * kRecordBytes));
    seal(pack, header);
    write_bytes(pack);
    return Pack::open(file()).value()->places();
  };
  for (const std::size_t index : {1, 50, 64, 99}) {  // 64: the first of its page
    const auto places = places_of(index);
    ASSERT_FALSE(places) << index;
    EXPECT_NE(places.error().message.find("its index is damaged"), std::string::npos);
  }
}

// An entry of format 2 has a checksum that anybody can make fit, and may end as its record says.
TEST_F(ForgedPack, DigestsOfFormat1AreComputedAndNotTakenFromTheEntry) {
  Bytes pack =
      read_file(MOEJIT_SOURCE_DIR "/tests/unit/cache/fixtures/format_1.moejitpack").value();
  write_bytes(pack);
  const Digest wanted = sha256("0");
  Entry other = Pack::open(file()).value()->get(wanted).value().value();
  other.payload.resize(other.payload.size() + 16);  // as much as a checksum is shorter
  const Bytes forged = encode_entry(wanted, other.metadata, other.payload);
  const PackHeader header = decode_header(std::span(pack).first(kPackHeaderBytes)).value();
  for (std::size_t i = 0; i < header.entries; ++i) {
    const auto bytes = std::span(pack).subspan(header.index_offset() + i * kRecordBytes);
    PackRecord record = decode_record(bytes);
    if (record.key != wanted) continue;
    ASSERT_EQ(record.bytes, forged.size());
    put_bytes(pack, record.offset, forged);
    record.digest = decode_digest(std::span(forged).last(32));
    encode_record(record, bytes);
  }
  seal(pack, header);
  PrivateKey key;
  key.bytes.fill(7);
  const Digest digest = pack_digest(std::span<const std::byte>(pack).first(kPackHeaderBytes));
  write_bytes(sign_pack(pack, digest, key, {}).value());
  const PackTrust trust{.ring = KeyRing{.path = "", .keys = {{key.public_key(), 0, ""}}}};
  const auto refused = Pack::open(file(), trust).value()->get(wanted);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.ends_with("it is not the one that was packed"));
}

TEST_F(ForgedPack, LengthsThatNoFileHasAreCaught) {
  const Bytes good = write(10);
  const PackHeader header = decode_header(std::span(good).first(kPackHeaderBytes)).value();
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  const auto expect_refused = [&](const std::function<void(PackHeader&)>& change) {
    PackHeader changed = header;
    change(changed);
    Bytes pack = good;
    put_bytes(pack, 0, encode_header(changed));
    write_bytes(pack);
    // A number of entries that needs no other page is noticed with the page.
    const auto opened = Pack::open(file());
    EXPECT_TRUE(opened ? !(*opened)->verify().empty()
                       : opened.error().code == ErrorCode::kCacheCorrupt);
  };
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{11}, std::uint64_t{1} << 24,
                                    std::uint64_t{1} << 58, kMost}) {
    expect_refused([&](PackHeader& changed) { changed.entries = value; });
    expect_refused([&](PackHeader& changed) { changed.manifest_bytes = value; });
    expect_refused([&](PackHeader& changed) { changed.entries_end = value; });
  }
  expect_refused([](PackHeader& changed) { changed.signatures = 1; });
  expect_refused([](PackHeader& changed) { changed.signatures = 0xffffffff; });
}

TEST_F(ForgedPack, AnotherFormatVersionIsNamed) {
  Bytes pack = write(1);
  put<std::uint32_t>(pack, 8, 3);
  put_bytes(pack, 224, bytes_of(sha256(std::span<const std::byte>(pack).first(224))));
  write_bytes(pack);
  EXPECT_EQ(Pack::open(file()).error().message,
            fmt::format("pack {}: its format version is 3, wanted 2", file()));
}

}  // namespace
}  // namespace moejit::cache
