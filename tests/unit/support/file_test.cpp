// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"

#include <csignal>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace moejit {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "moejit-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

TEST_F(FileTest, ReadsBackWhatItWrote) {
  const std::string text("a\0b", 3);
  ASSERT_TRUE(write_file(path("f"), text));
  EXPECT_EQ(read_text_file(path("f")).value(), text);
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, ReadsNothingOfAFileThatIsTooLong) {
  ASSERT_TRUE(write_file(path("f"), "12345"));
  EXPECT_EQ(read_text_file(path("f"), 5).value(), "12345");
  const Result<std::string> longer = read_text_file(path("f"), 4);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, ErrorCode::kInvalidValue);
  EXPECT_EQ(longer.error().message, path("f") + ": got 5 bytes, wanted at most 4");
  const Result<std::string> endless = read_text_file("/dev/zero", 4096);
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().message, "/dev/zero: got more than 4096 bytes, wanted at most 4096");
}

TEST_F(FileTest, ReplacesTheOldContent) {
  ASSERT_TRUE(write_file(path("f"), "a long old text"));
  ASSERT_TRUE(write_file(path("f"), "new"));
  EXPECT_EQ(read_text_file(path("f")).value(), "new");
}

TEST_F(FileTest, NamesAFileThatIsNotThere) {
  const auto text = read_text_file(path("absent"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kFileNotFound);
  EXPECT_EQ(text.error().message,
            fmt::format("cannot open {}: No such file or directory", path("absent")));
}

TEST_F(FileTest, SaysThatAFolderIsNoFile) {
  const auto text = read_text_file(folder_.string());
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kFileNotFound);
}

TEST_F(FileTest, ReadsFilesThatTellNoSize) {
  EXPECT_GT(read_text_file("/proc/self/status").value().size(), 100u);
}

TEST_F(FileTest, RefusesToWriteBelowAMissingFolder) {
  const auto written = write_file(path("absent/f"), "text");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kFileWrite);
}

TEST_F(FileTest, LeavesTheOldFileWhereTheDiskIsFull) {
  ASSERT_TRUE(write_file(path("f"), "old"));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto written = write_file(path("f"), std::string(2000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kFileWrite);
  EXPECT_EQ(read_text_file(path("f")).value(), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, WritesToADeviceWithoutReplacingIt) {
  ASSERT_TRUE(write_file("/dev/null", "text"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace moejit
