// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/digest.h"

#include <gtest/gtest.h>

namespace moejit {
namespace {

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256("").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, IsReadBackFromItsHex) {
  const Digest digest = sha256("abc");
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
}

TEST(Digest, RefusesTextThatIsNotAHexDigest) {
  const std::string hex = sha256("abc").hex();
  EXPECT_FALSE(Digest::from_hex(hex.substr(1)));
  EXPECT_FALSE(Digest::from_hex(hex + "0"));
  EXPECT_FALSE(Digest::from_hex("BA" + hex.substr(2)));
  EXPECT_FALSE(Digest::from_hex("g" + hex.substr(1)));
}

// The digest of one field by hand: count, length of the name, name, length of the value, value.
TEST(FieldHasher, HashesLengthsBesideTheText) {
  const std::string bytes{"\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0n\2\0\0\0\0\0\0\0vw", 27};
  EXPECT_EQ(FieldHasher().add("n", "vw").digest(), sha256(bytes));
}

TEST(FieldHasher, TellsFieldsApartThatJoinToTheSameText) {
  const Digest digest = FieldHasher().add("ab", "c").digest();
  EXPECT_NE(digest, FieldHasher().add("a", "bc").digest());
  EXPECT_NE(digest, FieldHasher().add("ab", "c").add("", "").digest());
}

TEST(FieldHasher, ListsWhatItWasFed) {
  FieldHasher hasher;
  hasher.add("arch", "sm_90a").add("schema", 3).add_digest_of("source", "abc");
  EXPECT_EQ(hasher.fields(),
            (std::vector<HashedField>{
                {"arch", "sm_90a"}, {"schema", "3"}, {"source", sha256("abc").hex()}}));
}

}  // namespace
}  // namespace moejit
