// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/child_process.h"
#include "tests/support/matchers.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace moejit::testing {

// How long a process of a test may take for what takes it no time: a deadline that nobody meets.
inline constexpr int64_t kLong = 60000;

// Processes that meet at a path of the test.
class MeetingTest : public ::testing::Test {
 protected:
  std::string path() const { return (dir_ / "group").string(); }

  // Starts a rank. `more` are fields of its identity, and "gpu=...".
  ChildProcess start(int32_t rank, int32_t ranks, int64_t deadline_ms = kLong,
                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {MOEJIT_MEETING_PROCESS, path(), std::to_string(rank),
                                          std::to_string(ranks), std::to_string(deadline_ms)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ChildProcess(arguments);
  }

  // Expects the next line to begin like this; returns it.
  static std::string expect(ChildProcess& rank, const std::string& begin) {
    const std::optional<std::string> line = rank.hear();
    EXPECT_TRUE(line.has_value()) << "nothing, wanted " << begin;
    EXPECT_TRUE(line.value_or("").starts_with(begin))
        << line.value_or("").substr(0, 300) << ", wanted " << begin;
    return line.value_or("");
  }
  // Expects a rank to fail with a code and a sentence that has the words, and to leave no file
  // open. Returns after how many milliseconds it failed.
  static int64_t expect_failure(ChildProcess& rank, const std::string& code,
                                const std::string& words) {
    const std::string line = expect(rank, "failed ");
    if (!line.starts_with("failed ")) rank.signal(SIGKILL);  // it would wait to be told something
    EXPECT_NE(line.find(" " + code + " "), std::string::npos)
        << line.substr(0, 300) << ", wanted " << code;
    EXPECT_NE(line.find(words), std::string::npos) << line.substr(0, 300) << ", wanted " << words;
    expect_end(rank);
    return line.starts_with("failed ") ? std::stoll(line.substr(7)) : -1;
  }
  static void expect_end(ChildProcess& rank) {
    EXPECT_EQ(rank.hear(), "files 0");
    EXPECT_EQ(rank.wait(), 0);
  }
  // Lets ranks that have met go on, and expects them to be done.
  static void expect_done(std::vector<ChildProcess>& ranks) {
    for (ChildProcess& rank : ranks) rank.say("go on");
    for (ChildProcess& rank : ranks) {
      expect(rank, "done ");
      expect_end(rank);
    }
  }
  // Waits until rank 0 listens. It has a socket some time before: who is stopped in between is
  // taken for a process that is gone.
  void await_socket() const {
    for (int i = 0; i < 6000 && !is_listening(); ++i)
      ::usleep(10000);  // NOLINT(concurrency-mt-unsafe)
    ASSERT_TRUE(is_listening());
  }
  // Returns whether the socket accepts connections: a flag of it (proc(5), "/proc/net/unix").
  bool is_listening() const {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);)
      if (line.ends_with(" " + path()) && line.find(" 00010000 ") != std::string::npos) return true;
    return false;
  }
  void expect_no_socket() const { EXPECT_FALSE(std::filesystem::exists(path())); }

  TestDir dir_;
};

}  // namespace moejit::testing
