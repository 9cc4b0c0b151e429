// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/cache_entries.h"

#include "tests/support/temp_dir.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::cli {
namespace {

std::string text(const std::vector<FieldDifference>& differences) {
  std::string result;
  for (const FieldDifference& difference : differences)
    result += fmt::format("{}:{}/{} ", difference.field, difference.a, difference.b);
  return result;
}

TEST(DifferingFields, AreToldInTheOrderOfTheKey) {
  const std::vector<HashedField> a = {
      {"target", "sim"}, {"source", "1"}, {"option", "-x"}, {"option", "-y"}, {"old", "o"}};
  const std::vector<HashedField> b = {
      {"new", "n"}, {"target", "sim"}, {"source", "2"}, {"option", "-x"}, {"option", "-z"}};
  EXPECT_EQ(text(differing_fields(a, b)), "source:1/2 option:-y/-z old:o/ new:/n ");
  EXPECT_EQ(text(differing_fields(a, a)), "");
}

TEST(DifferingFields, ComparesDigestsOfHeadersAsFarAsTheyWereStored) {
  const std::string digest = sha256("header").hex(), first = digest.substr(0, 8);
  const std::vector<HashedField> whole = {{"source", digest}, {"header:a/b.cuh", digest}};
  const std::vector<HashedField> stored = {{"source", digest}, {"header:a/b.cuh", first}};
  const std::vector<HashedField> other = {{"source", first}, {"header:a/b.cuh", "00000000"}};
  EXPECT_EQ(text(differing_fields(whole, stored)), "");
  EXPECT_EQ(text(differing_fields(stored, whole)), "");
  EXPECT_EQ(text(differing_fields(whole, other)),
            fmt::format("source:{}/{} header:a/b.cuh:{}/00000000 ", digest, first, digest));
}

TEST(ReasonOf, TellsTheLongerNameFirst) {
  EXPECT_EQ(reason_of("compiler_build_id"), "another build of NVRTC");
  EXPECT_EQ(reason_of("compiler"), "another compiler");
  EXPECT_EQ(reason_of("header:moejit_device/ptx/wgmma.cuh"),
            "other headers: another version of moejit");
  EXPECT_EQ(reason_of("whatever"), "another input");
}

TEST(FindKey, TakesBeginningsAndPaths) {
  const testing::TempDir folder;
  const auto cache = cache::KernelCache::open((folder / "cache").string()).value();
  const Digest first = Digest::from_hex(std::string(60, 'a') + "0001").value();
  const Digest second = Digest::from_hex(std::string(60, 'a') + "0002").value();
  const Digest third = Digest::from_hex(std::string(64, 'b')).value();
  for (const Digest& key : {first, second, third}) cache->put(key, "{}", {});
  EXPECT_EQ(find_key(*cache, "bb").value(), third);
  EXPECT_EQ(find_key(*cache, second.hex()).value(), second);
  EXPECT_EQ(find_key(*cache, cache->inspect(first)->path).value(), first);
  for (const char* wrong : {"", "aa", "cc", "bbx"}) EXPECT_FALSE(find_key(*cache, wrong)) << wrong;
  EXPECT_NE(find_key(*cache, "aa").error().message.find("2 kernels in"), std::string::npos);
}

}  // namespace
}  // namespace moejit::cli
