// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/exhausted.h"

#include "compiler/support/file.h"
#include "compiler/support/plain_text.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <new>
#include <stdexcept>
#include <system_error>

namespace moejit {
namespace {

TEST(Exhausted, NamesTheResource) {
  const auto error_of = [](int number) {
    return exhausted(Stage::kCompile, std::system_error(number, std::generic_category()));
  };
  const auto threads = error_of(EAGAIN);
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->code, ErrorCode::kOutOfMemory);
  EXPECT_NE(threads->message.find("no more threads"), std::string::npos);
  EXPECT_NE(threads->hint.find("ulimit -u"), std::string::npos);
  EXPECT_NE(error_of(EMFILE)->hint.find("ulimit -n"), std::string::npos);
  EXPECT_EQ(exhausted(Stage::kCompile, std::bad_alloc())->code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(exhausted(Stage::kCompile, std::length_error("long"))->code, ErrorCode::kOutOfMemory);
}

TEST(Exhausted, LeavesBugsAlone) {
  EXPECT_FALSE(exhausted(Stage::kCompile, std::logic_error("wrong")));
  EXPECT_FALSE(exhausted(Stage::kCompile, std::system_error(EINVAL, std::generic_category())));
  EXPECT_EQ(hint_for_errno(ENOENT), "");
}

TEST(PlainText, HasNoControlCharacters) {
  EXPECT_EQ(plain_text("a\x1b[31m\x7f"
                       "b\r\n\tc"),
            "a [31m b \n\tc");
  EXPECT_EQ(plain_text("\xc2\x9b"
                       "31m \xc2\xa0 \xc3\xa9 \xc2"),
            "  31m \xc2\xa0 \xc3\xa9 \xc2");
  EXPECT_EQ(plain_text(std::string("a\0b", 3)), "a b");
}

TEST(FileNames, LeadToNoOtherFolder) {
  for (const char* name : {"a", "a.b", "..a", "...", "a b", "-a"})
    EXPECT_TRUE(is_file_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("/a"),
        std::string("a/b"), std::string("a/"), std::string("a\0", 2)})
    EXPECT_FALSE(is_file_name(name)) << name;
}

}  // namespace
}  // namespace moejit
