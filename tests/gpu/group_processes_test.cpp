// SPDX-License-Identifier: Apache-2.0
// Groups of two processes on two GPUs: the bits of one process, and what becomes of the survivor
// when the other one is silent, stopped or killed. The program starts itself as each rank:
//   group_processes_cuda_test --rank R PATH FOLDER small|large TIMEOUT_MS
#include "moejit_device/params/status_bits.h"
#include "runtime/gpu_links.h"
#include "runtime/group.h"
#include "tests/gpu/group_case.h"
#include "tests/gpu/process_rank.h"
#include "tests/support/child_process.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>
#include <unistd.h>

namespace moejit::testing {
namespace {

constexpr int64_t kTimeout = 1000;
// For the time that processes take to be heard of on a loaded machine.
constexpr double kSlack = 500.0;

struct Said {
  uint32_t status = 0;
  double ms = 0.0;
};

class GroupProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto links = runtime::gpu_links();
    if (!links) GTEST_SKIP() << links.error().message;
    if (links->size() < 2) GTEST_SKIP() << "wanted 2 GPUs, got " << links->size();
    if (!(*links)[0][1] || !(*links)[1][0]) GTEST_SKIP() << "GPUs 0 and 1 do not reach each other";
  }
  ChildProcess start(int32_t rank, bool is_large = false, int64_t timeout_ms = kTimeout) const {
    return ChildProcess({"/proc/self/exe", "--rank", std::to_string(rank),
                         (dir_ / "group").string(), dir_.path().string(),
                         is_large ? "large" : "small", std::to_string(timeout_ms)});
  }
  // Starts both ranks, and waits until they have prepared the layer.
  std::vector<ChildProcess> start_both(bool is_large = false, int64_t timeout_ms = kTimeout) const {
    std::vector<ChildProcess> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, is_large, timeout_ms));
    for (ChildProcess& rank : ranks) EXPECT_EQ(hear(rank), "device");
    for (ChildProcess& rank : ranks) rank.say("open");
    for (ChildProcess& rank : ranks) expect_ready(rank);
    return ranks;
  }
  static void expect_ready(ChildProcess& rank) {
    const std::string line = hear(rank);
    EXPECT_TRUE(line.starts_with("ready ")) << line;
    std::cout << "opened in " << line.substr(std::min<std::size_t>(6, line.size())) << " ms\n";
  }
  // A kernel that nobody has compiled may take a minute.
  static std::string hear(ChildProcess& rank) { return rank.hear(300000).value_or("nothing"); }
  static std::string ask(ChildProcess& rank, const std::string& line) {
    rank.say(line);
    return hear(rank);
  }
  static Said heard_status(ChildProcess& rank) {
    const std::string line = hear(rank);
    Said said;
    // NOLINTNEXTLINE(cert-err34-c): text of our own
    EXPECT_EQ(std::sscanf(line.c_str(), "status %u %lf", &said.status, &said.ms), 2) << line;
    return said;
  }
  // Lets both ranks run once, and expects that both have status 0.
  static void expect_run(ChildProcess& first, ChildProcess& second) {
    for (ChildProcess* rank : {&first, &second}) rank->say("run");
    for (ChildProcess* rank : {&first, &second}) EXPECT_EQ(heard_status(*rank).status, 0U);
  }
  // Expects that the survivor is told of the rank that is silent, in time, and that it works.
  static void expect_silent(ChildProcess& survivor, int32_t silent, int64_t timeout_ms = kTimeout) {
    const Said said = heard_status(survivor);
    EXPECT_NE(said.status & device::kStatusSilentRank, 0U);
    EXPECT_EQ(runtime::silent_ranks(said.status), std::to_string(silent));
    EXPECT_LE(said.ms, static_cast<double>(timeout_ms) + kSlack);
    std::cout << "time-out of " << timeout_ms << " ms: the call returned after " << said.ms
              << " ms\n";
    EXPECT_EQ(ask(survivor, "alive"), "alive");
    EXPECT_TRUE(ask(survivor, "run").starts_with("failed invalid_state rank "));
  }
  // Expects that the files of both ranks are what one process makes of the layer.
  void expect_bits(bool is_large = false) {
    const ProcessLayer of = process_layer(is_large);
    std::string why_not;
    const auto in_one = GroupCase::open(of.layer, of.tokens, why_not);
    ASSERT_NE(in_one, nullptr) << why_not;
    EXPECT_EQ(in_one->run(), (std::vector<uint32_t>{0, 0}));
    in_one->expect_bits_of_one_rank();
    const std::vector<cli::TensorMap> results = in_one->results();
    int compared = 0;
    for (std::size_t rank = 0; rank < results.size(); ++rank)
      for (const auto& [name, host] : results[rank]) {
        const auto bytes = read_file((dir_ / fmt::format("{}.{}", rank, name)).string());
        ASSERT_TRUE(succeeded(bytes));
        EXPECT_TRUE(*bytes == host.bytes) << name << " of rank " << rank;
        ++compared;
      }
    EXPECT_EQ(compared, is_large ? 2 : 2 * 5);  // y, dx, dprobs, dw1, dw2
  }
  void expect_saved_bits(ChildProcess& first, ChildProcess& second, bool is_large = false) {
    for (ChildProcess* rank : {&first, &second}) EXPECT_EQ(ask(*rank, "save"), "saved");
    expect_bits(is_large);
  }
  // Kills a rank and has a new process in its place.
  ChildProcess replace(ChildProcess& survivor, ChildProcess& dead, int32_t rank,
                       bool is_large = false) const {
    dead.wait();
    ChildProcess fresh = start(rank, is_large);
    EXPECT_EQ(hear(fresh), "device");
    survivor.say("reopen");
    fresh.say("open");
    EXPECT_EQ(hear(survivor), "done");
    expect_ready(fresh);
    return fresh;
  }

  TestDir dir_;
};

TEST_F(GroupProcesses, GiveTheBitsOfOneProcess) {
  for (const bool is_large : {false, true}) {
    std::vector<ChildProcess> ranks = start_both(is_large);
    for (int run = 0; run < 3; ++run) expect_run(ranks[0], ranks[1]);
    expect_saved_bits(ranks[0], ranks[1], is_large);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "group"));
    if (HasFailure()) return;
  }
}

TEST_F(GroupProcesses, NameARankThatNeverCalls) {
  for (const std::size_t silent : {0, 1}) {
    std::vector<ChildProcess> ranks = start_both();
    ranks[1 - silent].say("run");
    expect_silent(ranks[1 - silent], static_cast<int32_t>(silent));
    for (ChildProcess& rank : ranks) EXPECT_EQ(ask(rank, "reset"), "done");
    expect_run(ranks[0], ranks[1]);
    expect_saved_bits(ranks[0], ranks[1]);
    if (HasFailure()) return;
  }
}

TEST_F(GroupProcesses, LoseNothingToAStopShorterThanTheTimeOut) {
  std::vector<ChildProcess> ranks = start_both(false, 5000);
  for (int stop = 0; stop < 2; ++stop) {
    ranks[1].signal(SIGSTOP);
    for (ChildProcess& rank : ranks) rank.say("run");
    ::usleep(1000000);  // NOLINT(concurrency-mt-unsafe)
    ranks[1].signal(SIGCONT);
    for (ChildProcess& rank : ranks) EXPECT_EQ(heard_status(rank).status, 0U);
  }
  expect_saved_bits(ranks[0], ranks[1]);
}

TEST_F(GroupProcesses, GoOnAfterAStopLongerThanTheTimeOut) {
  constexpr int64_t kShort = 300;
  std::vector<ChildProcess> ranks = start_both(false, kShort);
  for (ChildProcess& rank : ranks) rank.say("loop");
  ::usleep(200000);  // NOLINT(concurrency-mt-unsafe)
  ranks[1].signal(SIGSTOP);
  expect_silent(ranks[0], 1, kShort);
  ::usleep(500000);  // NOLINT(concurrency-mt-unsafe)
  ranks[1].signal(SIGCONT);
  EXPECT_NE(heard_status(ranks[1]).status & device::kStatusSilentRank, 0U);
  EXPECT_EQ(ask(ranks[1], "alive"), "alive");
  for (ChildProcess& rank : ranks) EXPECT_EQ(ask(rank, "reset"), "done");
  expect_run(ranks[0], ranks[1]);
  expect_saved_bits(ranks[0], ranks[1]);
}

// Before its first call, and after one that is over.
TEST_F(GroupProcesses, SurviveARankThatIsKilledBetweenCalls) {
  for (const std::size_t dead : {1, 0})
    for (const bool has_run : {false, true}) {
      std::vector<ChildProcess> ranks = start_both();
      ChildProcess& survivor = ranks[1 - dead];
      if (has_run) expect_run(ranks[0], ranks[1]);
      ranks[dead].signal(SIGKILL);
      ranks[dead].wait();
      survivor.say("run");
      expect_silent(survivor, static_cast<int32_t>(dead));
      ChildProcess fresh = replace(survivor, ranks[dead], static_cast<int32_t>(dead));
      expect_run(survivor, fresh);
      expect_saved_bits(survivor, fresh);
      if (HasFailure()) return;
    }
}

// While its rows are on the wire: a large layer, and calls that follow each other without a pause.
TEST_F(GroupProcesses, SurviveARankThatIsKilledWhileItSends) {
  for (int run = 0; run < 6; ++run) {
    const std::size_t dead = run % 2 == 0 ? 1 : 0;
    std::vector<ChildProcess> ranks = start_both(true);
    ChildProcess& survivor = ranks[1 - dead];
    survivor.say("loop");
    ranks[dead].say("flood");
    ::usleep(300000 + static_cast<useconds_t>(run) * 7777);  // NOLINT(concurrency-mt-unsafe)
    ranks[dead].signal(SIGKILL);
    expect_silent(survivor, static_cast<int32_t>(dead));
    ChildProcess fresh = replace(survivor, ranks[dead], static_cast<int32_t>(dead), true);
    expect_run(survivor, fresh);
    if (run < 2) expect_saved_bits(survivor, fresh, true);
    if (HasFailure()) return;
  }
}

void tell(const std::string& line) { std::cout << line << std::endl; }

int run_rank(char** arguments) {
  const auto fail = [](const Error& error) {
    tell("failed " + to_string(error));
    return 1;
  };
  auto rank = ProcessRank::open_device(std::stoi(arguments[0]));
  if (!rank) return fail(rank.error());
  tell("device");  // from here on no rank is slower than the other for reasons of its start
  std::string line;
  std::getline(std::cin, line);
  const bool is_large = std::string_view(arguments[3]) == "large";
  const Result<void> opened =
      (*rank)->open_group(process_layer(is_large), arguments[1], std::stoll(arguments[4]));
  if (!opened) return fail(opened.error());
  (*rank)->save_to(arguments[2]);
  tell(fmt::format("ready {:.1f}", (*rank)->open_ms()));
  while (std::getline(std::cin, line)) tell((*rank)->obey(line));
  return 0;
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  if (argc == 7 && std::string_view(argv[1]) == "--rank")
    return moejit::testing::run_rank(argv + 2);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
