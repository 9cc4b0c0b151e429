// SPDX-License-Identifier: Apache-2.0
#include "cache/signature.h"

#include "tests/unit/cache/pack_test.h"

#include <algorithm>
#include <sys/stat.h>

namespace moejit::cache {
namespace {

// As openssl wrote them.
constexpr const char* kPrivateA =
    "-----BEGIN PRIVATE "
    "KEY-----\nMC4CAQAwBQYDK2VwBCIEILwxEe+khyh+EqECK4UY+TDcYd7HsT/QXUN3fxNCDKKq\n"
    "-----END PRIVATE KEY-----\n";
constexpr const char* kPublicA =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAffDzP5z9r9uTxgHCbJ8sUg4s2P3mzUBdDIboJQSL/cU=\n"
    "-----END PUBLIC KEY-----\n";
constexpr const char* kPrivateB =
    "-----BEGIN PRIVATE "
    "KEY-----\nMC4CAQAwBQYDK2VwBCIEIEy8rtfBFxFMxXu3CHx0p4qw1l0s8J1Yq69syIeg9gGE\n"
    "-----END PRIVATE KEY-----\n";
constexpr const char* kPublicB =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEATQ78xHSZurJfZghAVCrpcWH4mZY7q4PNiaHEhhJATkg=\n"
    "-----END PUBLIC KEY-----\n";
constexpr std::int64_t kNow = 1'800'000'000;  // 2027-01-15

class SignatureTest : public PackTest {
 protected:
  std::string write_text(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(write_file(path, text));
    std::filesystem::permissions(path, std::filesystem::perms(0644));
    return path;
  }
  PrivateKey private_key(const char* pem) {
    return read_private_key(write_text("private", pem)).value();
  }
  KeyRing ring(const std::string& pem) { return read_key_ring(write_text("ring", pem)).value(); }
  void sign_file(const char* pem, const SignatureTerms& terms = {}) {
    const Digest digest = Pack::open(file(), {.is_inspection = true}).value()->digest();
    write_bytes(sign_pack(read_file(file()).value(), digest, private_key(pem), terms).value());
  }
  // Puts an entry of the same size in the place of one.
  void put_entry(const Digest& key, const std::vector<std::byte>& entry_bytes) {
    const auto places = Pack::open(file()).value()->places().value();
    const auto place = std::ranges::find(places, key, &Pack::Place::key);
    ASSERT_EQ(place->bytes, entry_bytes.size());
    auto bytes = read_file(file()).value();
    std::ranges::copy(entry_bytes, bytes.begin() + static_cast<std::ptrdiff_t>(place->offset));
    write_bytes(bytes);
  }
  // Why the pack is refused; empty: it is not.
  std::string refusal(const std::string& ring_pem) {
    const auto pack = Pack::open(file(), {.ring = ring(ring_pem), .now = kNow});
    if (pack) return "";
    EXPECT_EQ(pack.error().code, ErrorCode::kCacheUnusable);
    return pack.error().message.substr(fmt::format("pack {}: ", file()).size());
  }
  std::string id_of(const char* pem) {
    return private_key(pem).public_key().id().hex().substr(0, 16);
  }
};

TEST_F(SignatureTest, KeysAreThoseOfRfc8032) {
  // Section 7.1, test 1.
  PrivateKey key;
  key.bytes =
      Digest::from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")->bytes;
  EXPECT_EQ(Digest{key.public_key().bytes}.hex(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(ring(kPublicA).keys.at(0).key, private_key(kPrivateA).public_key());
}

TEST_F(SignatureTest, AGoodSignatureIsAccepted) {
  write(5);
  const Digest before = Pack::open(file()).value()->digest();
  sign_file(kPrivateA, {.serial = 3, .expires_at = kNow + 1});
  EXPECT_EQ(refusal(kPublicA), "");
  const auto pack = Pack::open(file()).value();  // nor is it in the way without a key ring
  EXPECT_EQ(pack->digest(), before);
  EXPECT_TRUE(pack->verify().empty());
  ASSERT_EQ(pack->signatures().size(), 1u);
  EXPECT_EQ(pack->signatures()[0].terms, (SignatureTerms{.serial = 3, .expires_at = kNow + 1}));
}

TEST_F(SignatureTest, AKeyRingMakesAForeignFileGood) {
  write(1);
  sign_file(kPrivateA);
  std::filesystem::permissions(file(), std::filesystem::perms(0666));
  EXPECT_FALSE(Pack::open(file()));
  EXPECT_EQ(refusal(kPublicA), "");
}

TEST_F(SignatureTest, AnUnsignedPackIsRefused) {
  write(1);
  EXPECT_EQ(refusal(kPublicA), "it has no signature");
}

TEST_F(SignatureTest, AnotherKeyIsRefused) {
  write(1);
  sign_file(kPrivateB);
  EXPECT_EQ(refusal(kPublicA), fmt::format("it is signed with key {}, which is not in the key ring "
                                           "{}",
                                           id_of(kPrivateB), (folder_ / "ring").string()));
}

TEST_F(SignatureTest, AnotherPackWithTheSameSignatureIsRefused) {
  write(1);
  sign_file(kPrivateA);
  const auto block = [&](const std::vector<std::byte>& bytes) {
    return std::vector(bytes.end() - 192, bytes.end());
  };
  const auto good = block(read_file(file()).value());
  write(2);
  sign_file(kPrivateA);
  auto bytes = read_file(file()).value();
  std::ranges::copy(good, bytes.end() - 192);
  write_bytes(bytes);
  EXPECT_EQ(refusal(kPublicA),
            fmt::format("its signature by key {} does not match: pack or signature was altered",
                        id_of(kPrivateA)));
}

TEST_F(SignatureTest, TermsAreSigned) {
  write(1);
  const auto key = private_key(kPrivateA);
  const Digest pack = Pack::open(file()).value()->digest();
  const Signature good = sign(pack, {.serial = 1, .expires_at = 2}, key);
  EXPECT_TRUE(is_valid(good, pack, key.public_key()));
  EXPECT_EQ(sign(pack, {.serial = 1, .expires_at = 2}, key), good);
  for (const SignatureTerms terms : {SignatureTerms{2, 2}, SignatureTerms{1, 3}}) {
    Signature forged = good;
    forged.terms = terms;
    EXPECT_FALSE(is_valid(forged, pack, key.public_key()));
  }
  EXPECT_FALSE(is_valid(good, sha256("another"), key.public_key()));
  EXPECT_FALSE(is_valid(good, pack, private_key(kPrivateB).public_key()));
}

// S and S plus the order of the group are the same to a lenient verifier.
TEST_F(SignatureTest, ASignatureHasOneForm) {
  const auto order =
      Digest::from_hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")->bytes;
  const auto key = private_key(kPrivateA);
  Signature signature = sign(sha256("pack"), {}, key);
  EXPECT_TRUE(is_valid(signature, sha256("pack"), key.public_key()));
  unsigned carry = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    carry += signature.bytes[32 + i] + unsigned{order[i]};
    signature.bytes[32 + i] = static_cast<std::uint8_t>(carry);
    carry >>= 8U;
  }
  EXPECT_FALSE(is_valid(signature, sha256("pack"), key.public_key()));
}

// Under such a key anybody can sign: with R the neutral element and S = 0, for one pack in eight at
// least.
TEST_F(SignatureTest, KeysOfSmallOrderAreRefused) {
  for (const char* hex : {"0000000000000000000000000000000000000000000000000000000000000000",
                          "0100000000000000000000000000000000000000000000000000000000000000",
                          "0100000000000000000000000000000000000000000000000000000000000080",
                          "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                          "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
                          "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                          "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}) {
    PublicKey key;
    key.bytes = Digest::from_hex(hex)->bytes;
    EXPECT_TRUE(is_of_small_order(key)) << hex;
    for (int pack = 0; pack < 64; ++pack) {
      Signature forged{.key_id = key.id()};
      forged.bytes[0] = 1;
      EXPECT_FALSE(is_valid(forged, sha256(std::to_string(pack)), key)) << hex;
    }
  }
  EXPECT_FALSE(is_of_small_order(private_key(kPrivateA).public_key()));
  const auto ring = read_key_ring(write_text(
      "ring",
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
      "-----END PUBLIC KEY-----\n"));
  ASSERT_FALSE(ring);
  EXPECT_NE(ring.error().message.find("of small order"), std::string::npos) << ring.error().message;
}

TEST_F(SignatureTest, AnExpiredSignatureIsRefused) {
  write(1);
  sign_file(kPrivateA, {.expires_at = kNow - 1});
  EXPECT_EQ(refusal(kPublicA),
            fmt::format("its signature by key {} expired on 2027-01-15", id_of(kPrivateA)));
  write(1);
  sign_file(kPrivateA, {.expires_at = kNow});  // its last second
  EXPECT_EQ(refusal(kPublicA), "");
}

TEST_F(SignatureTest, ARolledBackPackIsRefused) {
  write(1);
  sign_file(kPrivateA, {.serial = 6});
  const std::string ring_file = (folder_ / "ring").string();
  EXPECT_EQ(refusal(std::string("least-serial: 7\n") + kPublicA),
            fmt::format("its serial is 6, but {} wants 7 or later from key {}", ring_file,
                        id_of(kPrivateA)));
  EXPECT_EQ(refusal(std::string("least-serial: 6\n") + kPublicA), "");
}

TEST_F(SignatureTest, KeysRotateByOverlap) {
  write(1);
  sign_file(kPrivateA);
  EXPECT_EQ(refusal(std::string(kPublicB) + kPublicA), "");  // the ring learns the new key
  sign_file(kPrivateB);                                      // packs get both signatures
  EXPECT_EQ(Pack::open(file()).value()->signatures().size(), 2u);
  EXPECT_EQ(refusal(kPublicA), "");
  EXPECT_EQ(refusal(kPublicB), "");  // the ring forgets the old key
  sign_file(kPrivateB, {.serial = 2});
  EXPECT_EQ(Pack::open(file()).value()->signatures().size(), 2u);  // replaced
}

TEST_F(SignatureTest, TheOrderOfSigningDoesNotMatter) {
  write(1);
  const auto bytes = read_file(file()).value();
  const Digest digest = Pack::open(file()).value()->digest();
  const auto a = private_key(kPrivateA), b = private_key(kPrivateB);
  EXPECT_EQ(sign_pack(sign_pack(bytes, digest, a, {}).value(), digest, b, {}).value(),
            sign_pack(sign_pack(bytes, digest, b, {}).value(), digest, a, {}).value());
  EXPECT_FALSE(sign_pack(bytes, sha256("another"), a, {}));
}

TEST_F(SignatureTest, EveryFlippedByteAndEveryTruncationIsNoticed) {
  write(2);
  sign_file(kPrivateA);
  with_every_byte_flipped([&](size_t at) {
    const auto pack = Pack::open(file());
    EXPECT_TRUE(!pack || !(*pack)->verify().empty()) << "byte " << at;
  });
  const size_t size = read_file(file())->size();
  for (size_t bytes = size - 1; bytes > size - 400; --bytes) {
    set_size(bytes);
    EXPECT_FALSE(Pack::open(file())) << bytes << " bytes";
  }
}

// Who may write to the file can make a checksum fit, and the key; a signature is not fooled.
TEST_F(SignatureTest, AnotherEntryWithARightChecksumIsNotServedUnderASignature) {
  write(3);
  sign_file(kPrivateA);
  const Entry wanted = entry(2);
  auto forged_payload = wanted.payload;
  forged_payload[0] ^= std::byte{1};
  put_entry(wanted.key, encode_entry(wanted.key, wanted.metadata, forged_payload));

  const auto trusted = Pack::open(file(), {.ring = ring(kPublicA), .now = kNow}).value();
  const auto refused = trusted->get(wanted.key);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCacheCorrupt);
  EXPECT_NE(refused.error().message.find("it is not the one that was packed"), std::string::npos);
  EXPECT_TRUE(trusted->get(entry(1).key).value());
  // Without a ring owner and mode are the promise. Looking at all of it tells in any case.
  const auto owned = Pack::open(file()).value();
  EXPECT_EQ(owned->get(wanted.key).value()->payload, forged_payload);
  EXPECT_EQ(owned->verify().size(), 1u);
}

TEST_F(SignatureTest, AKeyRingMayBeAFolder) {
  std::filesystem::create_directory(folder_ / "keys");
  write_text("keys/a.pem", kPublicA);
  write_text("keys/b.pem", std::string("least-serial: 4\n") + kPublicB);
  write_text("keys/README", "not a key");
  const auto keys = read_key_ring((folder_ / "keys").string());
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->keys.size(), 2u);
  EXPECT_EQ(keys->keys[0].least_serial, 0u);
  EXPECT_EQ(keys->keys[1].least_serial, 4u);
}

TEST_F(SignatureTest, BadKeyRingsAreRefused) {
  const auto code_of = [&](const std::string& text) {
    return read_key_ring(write_text("ring", text)).error().code;
  };
  EXPECT_EQ(code_of(""), ErrorCode::kInvalidFile);
  EXPECT_EQ(code_of("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
            ErrorCode::kInvalidFile);
  EXPECT_EQ(code_of(std::string("least-serial: some\n") + kPublicA), ErrorCode::kInvalidFile);
  for (const char* line : {"least-serial 7", "Least-Serial: 7", "least_serial: 7", "last-serial: 7",
                           "# least-serial: 7", "least-serial: 7 or so", "least-serial: -7"})
    EXPECT_EQ(code_of(std::string(line) + "\n" + kPublicA), ErrorCode::kInvalidFile) << line;
  EXPECT_EQ(code_of(std::string(kPublicA) + "least-serial: 7\n"), ErrorCode::kInvalidFile);
  EXPECT_EQ(ring(std::string("# spring\nleast-serial: 7 \r\n\n") + kPublicA).keys[0].least_serial,
            7u);
  EXPECT_EQ(read_key_ring((folder_ / "none").string()).error().code, ErrorCode::kFileNotFound);
  const std::string path = write_text("ring", kPublicA);
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  EXPECT_EQ(read_key_ring(path).error().code, ErrorCode::kCacheUnusable);
  EXPECT_EQ(read_private_key(write_text("private", kPublicA)).error().code,
            ErrorCode::kInvalidFile);
}

// A ring that others can exchange is none, however right its file is.
TEST_F(SignatureTest, AKeyRingHasToBeWhereNobodyElseWrites) {
  const auto message_of = [](const std::filesystem::path& path) {
    const auto ring = read_key_ring(path.string());
    return ring ? "" : ring.error().message;
  };
  const std::filesystem::path below = folder_ / "open/below";
  std::filesystem::create_directories(below);
  const std::string ring = write_text("open/below/ring.pem", kPublicA);
  std::filesystem::create_symlink(ring, folder_ / "link.pem");
  EXPECT_EQ(message_of(ring), "");
  EXPECT_EQ(message_of(folder_ / "link.pem"), "");
  const auto set_mode = [&](unsigned mode) {
    ASSERT_EQ(::chmod((folder_ / "open").c_str(), mode), 0);
  };
  for (const unsigned mode : {0777u, 0775u, 0707u}) {
    set_mode(mode);
    for (const std::filesystem::path& path :
         {std::filesystem::path(ring), below, folder_ / "link.pem"})
      EXPECT_NE(message_of(path).find("open on the way to it: its mode is"), std::string::npos)
          << path << message_of(path);
  }
  set_mode(01777);  // as /tmp: what is ours stays
  EXPECT_EQ(message_of(ring), "");
  if (::geteuid() != 0) return;
  ASSERT_EQ(::lchown((folder_ / "link.pem").c_str(), 12345, 12345), 0);
  EXPECT_NE(message_of(folder_ / "link.pem").find("belongs to user 12345"), std::string::npos);
  ASSERT_EQ(::chown((folder_ / "open").c_str(), 12345, 12345), 0);
  EXPECT_NE(message_of(ring).find("belongs to user 12345"), std::string::npos);
}

TEST(Dates, AreDaysInUtc) {
  EXPECT_EQ(date_text(kNow), "2027-01-15");
  EXPECT_EQ(end_of_day("1970-01-01"), 86399);
  EXPECT_EQ(date_text(*end_of_day("2028-02-29")), "2028-02-29");
  for (const char* bad : {"", "2027-02-30", "2027-13-01", "tomorrow", "2027-01-01x", "2027-1-1"})
    EXPECT_FALSE(end_of_day(bad)) << bad;
}

}  // namespace
}  // namespace moejit::cache
