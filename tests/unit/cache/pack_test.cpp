// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cache/pack_test.h"

#include "cache/pack/pack_format.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace moejit::cache {
namespace {

using Bytes = std::vector<std::byte>;

std::string message_of(const Error& error) { return error.message; }

TEST_F(PackTest, GivesBackEveryEntryAndNothingElse) {
  write(200);  // four pages
  const auto pack = Pack::open(file()).value();
  EXPECT_EQ(pack->size(), 200);
  EXPECT_EQ(pack->manifest(), R"({"made":"here"})");
  for (int i = 0; i < 200; ++i) EXPECT_EQ(pack->get(entry(i).key).value(), entry(i));
  for (int i = 200; i < 400; ++i) EXPECT_EQ(pack->get(entry(i).key).value(), std::nullopt);
  EXPECT_TRUE(pack->contains(entry(7).key).value());
  EXPECT_FALSE(pack->contains(entry(777).key).value());
  EXPECT_TRUE(pack->verify().empty());
}

TEST_F(PackTest, MayBeEmpty) {
  write(0);
  const auto pack = Pack::open(file()).value();
  EXPECT_EQ(pack->get(entry(0).key).value(), std::nullopt);
  EXPECT_TRUE(pack->verify().empty());
  EXPECT_TRUE(pack->places()->empty());
}

TEST_F(PackTest, IsAFunctionOfTheSetOfEntries) {
  std::vector<Entry> shuffled = entries(100);
  const Bytes expected = encode_pack(shuffled, "{}").value();
  std::ranges::reverse(shuffled);
  shuffled.push_back(entry(5));  // a second time
  EXPECT_EQ(encode_pack(unique_entries(shuffled).value(), "{}").value(), expected);
  EXPECT_EQ(encode_pack(shuffled, "{}").error().code, ErrorCode::kInvalidValue);
}

// Packs of format 2 are read for ever: raise the version where this changes. The digest is of what
// the writer in tests/cli/pack_file.py makes of the same entries.
TEST_F(PackTest, HasTheFormatThatItHad) {
  EXPECT_EQ(sha256(encode_pack(entries(100), R"({"made":"here"})").value()).hex(),
            "da52dbf1f07cf5d3ddbe504758fe665b2da9267ee11cd2293dded24efe022a9e");
}

TEST_F(PackTest, OfFormat1AreReadToTheLastByte) {
  const std::string fixture = MOEJIT_SOURCE_DIR "/tests/unit/cache/fixtures/format_1.moejitpack";
  write_bytes(read_file(fixture).value());
  const auto pack = Pack::open(file()).value();
  EXPECT_TRUE(pack->verify().empty());
  ASSERT_EQ(pack->size(), 3);
  const std::vector<Pack::Place> places = pack->places().value();
  for (const Pack::Place& place : places)
    EXPECT_TRUE(pack->get(place.key).value()) << place.key.hex();
  const auto found = pack->get(sha256("0")).value();
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::ranges::equal(found->payload, std::as_bytes(std::span("code 0", 6))));
  with_every_byte_flipped([&](size_t at) {
    const auto damaged = Pack::open(file());
    EXPECT_TRUE(!damaged || !(*damaged)->verify().empty()) << at;
  });
}

// Each bit of a key flips to another key that may be in order: then the entry is damaged, not
// absent.
TEST_F(PackTest, TellsOfADamagedIndexInsteadOfAMiss) {
  const Bytes whole = write(100);
  const PackHeader header = decode_header(std::span(whole).first(kPackHeaderBytes)).value();
  for (const std::size_t index : {0, 50, 99}) {
    const std::size_t record = header.index_offset() + index * kRecordBytes;
    const Digest key = decode_record(std::span(whole).subspan(record)).key;
    Bytes bytes = whole;
    bytes[record + 31] ^= std::byte{1};  // the last byte of its key
    write_bytes(bytes);
    const auto pack = Pack::open(file());
    ASSERT_TRUE(pack) << message_of(pack.error());
    EXPECT_FALSE((*pack)->get(key)) << index;
  }
}

TEST_F(PackTest, RefusesTwoContentsOfOneKey) {
  std::vector<Entry> both = entries(2);
  both[1].key = both[0].key;
  const auto unique = unique_entries(both);
  ASSERT_FALSE(unique);
  EXPECT_EQ(message_of(unique.error()),
            fmt::format("key {} stands for two different contents", both[0].key.hex()));
}

TEST_F(PackTest, TakesTheShortestMetadataOfOnePayload) {
  std::vector<Entry> all = entries(1);
  for (const char* metadata : {"{\"b\":1}", "{\"a\":1}", "{\"_of\":\"an earlier version\"}"}) {
    all.push_back(all[0]);
    all.back().metadata = metadata;
  }
  all.erase(all.begin());
  const auto unique = unique_entries(all);
  ASSERT_TRUE(unique) << message_of(unique.error());
  ASSERT_EQ(unique->size(), 1u);
  EXPECT_EQ((*unique)[0].metadata, "{\"a\":1}");
}

TEST_F(PackTest, AlignsEntriesAsFilesOfTheirOwn) {
  const Bytes bytes = write(100);
  const auto pack = Pack::open(file()).value();
  const auto places = pack->places().value();
  ASSERT_EQ(places.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(places, {}, &Pack::Place::key));
  for (const Pack::Place& place : places) {
    EXPECT_EQ(place.offset % 64, 0u);
    const auto file = std::span(bytes).subspan(place.offset, place.bytes);
    EXPECT_TRUE(decode_entry(file, place.key));
  }
}

// What a reader meets is either all right or an error; the entry that it asked for never differs.
bool is_caught_or_right(const std::string& path, const std::vector<Entry>& wanted) {
  const auto pack = Pack::open(path);
  if (!pack) return true;
  for (const Entry& entry : wanted) {
    const auto got = (*pack)->get(entry.key);
    if (got && *got && **got != entry) return false;
  }
  return true;
}

TEST_F(PackTest, NoticesEveryFlippedByte) {
  write(3);
  with_every_byte_flipped([&](size_t at) {
    const auto pack = Pack::open(file());
    EXPECT_TRUE(!pack || !(*pack)->verify().empty()) << "byte " << at;
    EXPECT_TRUE(is_caught_or_right(file(), entries(3))) << "byte " << at;
  });
}

TEST_F(PackTest, NoticesEveryTruncationAndExtension) {
  const size_t size = write(3).size();
  set_size(size + 1);
  EXPECT_FALSE(Pack::open(file()));
  for (size_t bytes = size; bytes-- > 0;) {
    set_size(bytes);
    EXPECT_FALSE(Pack::open(file())) << bytes << " bytes";
  }
}

TEST_F(PackTest, TellsWhichEntryIsDamaged) {
  Bytes bytes = write(10);
  const auto place = Pack::open(file()).value()->places()->at(4);
  bytes[place.offset + 20] ^= std::byte{1};
  write_bytes(bytes);
  const auto pack = Pack::open(file()).value();
  const auto got = pack->get(place.key);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kCacheCorrupt);
  EXPECT_EQ(message_of(got.error()),
            fmt::format("pack {}: entry {}: its checksum does not match", file(), place.key.hex()));
  EXPECT_EQ(pack->verify(),
            (std::vector{fmt::format("entry {}: its checksum does not match", place.key.hex())}));
}

TEST_F(PackTest, SurvivesAFileThatShrinksUnderIt) {
  write(200);
  const auto pack = Pack::open(file()).value();
  ASSERT_EQ(::truncate(file().c_str(), 5000), 0);
  const auto got = pack->get(entry(150).key);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kCacheCorrupt);
  EXPECT_TRUE(message_of(got.error()).ends_with("it is shorter than it was"))
      << message_of(got.error());
}

TEST_F(PackTest, GoesOnWithTheOldFileWhereItIsReplaced) {
  write(100);
  const auto pack = Pack::open(file()).value();
  write(1);
  EXPECT_EQ(pack->get(entry(50).key).value(), entry(50));
  EXPECT_EQ(Pack::open(file()).value()->get(entry(50).key).value(), std::nullopt);
}

TEST_F(PackTest, ServesManyThreadsAtOnce) {
  write(300);
  const auto pack = Pack::open(file()).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 300; ++i) {
        const Entry wanted = entry((i * 7 + thread) % 300);
        const auto got = pack->get(wanted.key);
        wrong += got && *got && **got == wanted ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(PackTest, IsWritableByItsOwnerAlone) {
  const mode_t before = ::umask(0);
  write(1);
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(file()).permissions(), std::filesystem::perms(0644));
  EXPECT_TRUE(Pack::open(file()));
}

TEST_F(PackTest, RefusesWhatOthersMayWriteTo) {
  write(1);
  for (const auto mode : {0620, 0602}) {
    std::filesystem::permissions(file(), std::filesystem::perms(mode));
    const auto pack = Pack::open(file());
    ASSERT_FALSE(pack);
    EXPECT_EQ(pack.error().code, ErrorCode::kCacheUnusable);
    EXPECT_EQ(message_of(pack.error()),
              fmt::format("pack {}: its mode is {:04o}: other users may write to it, wanted 0644",
                          file(), mode));
  }
}

TEST_F(PackTest, RefusesAForeignOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  write(1);
  ASSERT_EQ(::chown(file().c_str(), 12345, 12345), 0);
  const auto pack = Pack::open(file());
  ASSERT_FALSE(pack);
  EXPECT_EQ(message_of(pack.error()), fmt::format("pack {}: it belongs to user 12345, wanted user "
                                                  "0 (or root)",
                                                  file()));
}

TEST_F(PackTest, RefusesWhatIsNoFileAndWhatIsNoPack) {
  EXPECT_EQ(Pack::open(file()).error().code, ErrorCode::kFileNotFound);
  EXPECT_EQ(Pack::open(folder_.string()).error().code, ErrorCode::kCacheUnusable);
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(Pack::open(file()).error().code, ErrorCode::kCacheUnusable);
  std::filesystem::remove(file());
  write_bytes(Bytes(1000));
  EXPECT_EQ(message_of(Pack::open(file()).error()),
            fmt::format("pack {}: it does not begin as a pack does", file()));
}

}  // namespace
}  // namespace moejit::cache
