// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/process.h"

#include "compiler/support/file.h"
#include "compiler/support/temporary_files.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

// TMPDIR is a folder of the test.
class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "moejit-process-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty())
      ::unsetenv("TMPDIR");
    else
      ::setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  static Result<ProcessResult> shell(const std::string& script, int limit_ms = 60000) {
    return run_process({"/bin/sh", "-c", script}, "/", std::chrono::milliseconds(limit_ms));
  }

  fs::path folder_;
  std::string before_;
};

TEST_F(ProcessTest, TellsOutputAndStatus) {
  const auto done = shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(done);
  EXPECT_EQ(done->output, "out\nerr\n");
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(shell("kill -9 $$")->exit_code, 128 + SIGKILL);
}

// A compiler that hangs must not hang its caller, nor stay: neither it nor what it started.
TEST_F(ProcessTest, KillsWhatHangsWithAllThatItStarted) {
  const std::string pids = (folder_ / "pids").string();
  const auto done = shell("sleep 1000 & echo $$ $! > " + pids + "; echo begun; wait", 300);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kCompilerFault);
  EXPECT_NE(done.error().message.find("did not end within 300 ms and was killed"),
            std::string::npos)
      << done.error().message;
  EXPECT_EQ(done.error().detail, "begun\n");
  const std::string text = read_text_file(pids).value();
  const pid_t child = std::stoi(text.substr(text.find(' ')));
  for (int i = 0; i < 6000 && ::kill(child, 0) == 0; ++i) {
    const std::string state =
        read_text_file("/proc/" + std::to_string(child) + "/stat").value_or(") Z");
    if (state.find(") Z") != std::string::npos) return;  // dead, and its reaper is slow
    ::usleep(10000);                                     // NOLINT(concurrency-mt-unsafe)
  }
  EXPECT_NE(::kill(child, 0), 0) << "the grandchild lives";
}

// Such as a server of a compiler cache, which has the compiler's output for its own.
TEST_F(ProcessTest, DoesNotWaitForWhatTheProgramLeft) {
  const auto done = shell("sleep 1000 & echo $!");
  ASSERT_TRUE(done);
  EXPECT_EQ(done->exit_code, 0);
  ::kill(std::stoi(done->output), SIGKILL);
}

TEST_F(ProcessTest, TakesTheBeginningOfAFlood) {
  const auto done = shell("head -c 40000000 /dev/zero");
  ASSERT_TRUE(done);
  EXPECT_EQ(done->exit_code, 0);
  EXPECT_LT(done->output.size(), std::size_t{20} << 20);
}

TEST_F(ProcessTest, MakesTemporaryFilesInTheWorkingDirectory) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder);
  const auto done =
      run_process({"/bin/sh", "-c", "echo $TMPDIR; touch $TMPDIR/made"}, folder->path());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->output, ".\n");
  EXPECT_TRUE(fs::exists(folder->path() / "made"));
}

// Where others may write to TMPDIR they can put a folder in place of ours, and a library into that.
TEST_F(ProcessTest, UsesItsFolderThoughAnotherIsInItsPlace) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder);
  const fs::path name = fs::directory_iterator(folder_)->path();
  fs::rename(name, folder_ / "aside");
  fs::create_directory(name);
  ASSERT_TRUE(write_file((name / "kernel.so").string(), "evil"));
  ASSERT_TRUE(run_process({"/bin/sh", "-c", "echo good > kernel.so"}, folder->path()));
  EXPECT_EQ(read_text_file((folder->path() / "kernel.so").string()).value(), "good\n");
  EXPECT_EQ(read_text_file((folder_ / "aside/kernel.so").string()).value(), "good\n");
}

// What a process that was killed left is removed by the next one; what lives, or is not ours by
// name, stays.
TEST_F(ProcessTest, SweepsFoldersOfDeadProcesses) {
  const auto make = [&](const std::string& name) {
    fs::create_directory(folder_ / name);
    EXPECT_TRUE(write_file((folder_ / name / "kernel.so").string(), "half"));
  };
  const pid_t maker = ::fork();
  if (maker == 0) {
    const auto left = TemporaryFolder::create();
    EXPECT_TRUE(write_file((left->path() / "kernel.cu").string(), "text"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(maker, &status, 0);
  ASSERT_EQ(fs::directory_iterator(folder_)->path().filename().string().rfind("moejit-compile-", 0),
            0U);
  make("moejit-compile-" + temporary_name() + "-abcdef");  // of this process
  make("moejit-results");
  const pid_t child = ::fork();  // a process sweeps once
  if (child == 0) {
    const bool is_made = TemporaryFolder::create().has_value();
    ::_exit(is_made ? 0 : 1);
  }
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
  EXPECT_TRUE(fs::exists(folder_ / "moejit-results/kernel.so"));
}

}  // namespace
}  // namespace moejit::compiler
