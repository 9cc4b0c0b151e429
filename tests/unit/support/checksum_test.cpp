// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/digest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace moejit {
namespace {

std::string hex_of(std::string_view text) {
  std::string hex;
  for (const std::uint8_t byte : xxh3_128(std::as_bytes(std::span(text))).bytes)
    hex += fmt::format("{:02x}", byte);
  return hex;
}

// As `xxhsum -H2` prints them: the order of the bytes is that of files, on every machine.
TEST(Checksum, IsTheCanonicalXxh3) {
  EXPECT_EQ(hex_of(""), "99aa06d3014798d86001c324468d497f");
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abc";
  EXPECT_EQ(hex_of(text), "bfae835ca03aaf033d1e91bb47ef5c2f");
}

}  // namespace
}  // namespace moejit
