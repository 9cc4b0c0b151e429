// SPDX-License-Identifier: Apache-2.0
// Groups of two processes on two GPUs, between which NCCL moves the bytes: the bits of a group
// whose ranks reach each other, eager and recorded, and what becomes of a rank whose peer is gone.
// The program starts itself as each rank:
//   group_nccl_cuda_test --rank R FOLDER CASE DEADLINE_MS
#include "runtime/device.h"
#include "runtime/nccl_transport.h"
#include "tests/gpu/group_case.h"
#include "tests/gpu/nccl_rank.h"
#include "tests/support/child_process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

#include <csignal>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <iostream>

namespace moejit::testing {
namespace {

constexpr int64_t kDeadline = 120000;

class NcclGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto links = runtime::gpu_links();
    if (!links) GTEST_SKIP() << links.error().message;
    if (links->size() < 2) GTEST_SKIP() << "wanted 2 GPUs, got " << links->size();
    if (!(*links)[0][1] || !(*links)[1][0])
      GTEST_SKIP() << "GPUs 0 and 1 do not reach each other, as the group that bits are compared "
                      "with needs it";
    const auto id = runtime::make_nccl_id();
    if (!id && id.error().code == ErrorCode::kDriverMissing) GTEST_SKIP() << id.error().message;
    ASSERT_TRUE(succeeded(id));
  }
  ChildProcess start(int32_t rank, const std::string& of, int64_t deadline_ms = kDeadline) const {
    return ChildProcess({"/proc/self/exe", "--rank", std::to_string(rank), dir_.path().string(), of,
                         std::to_string(deadline_ms)});
  }
  std::vector<ChildProcess> start_both(const std::string& of) const {
    std::vector<ChildProcess> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, of));
    for (ChildProcess& rank : ranks) EXPECT_EQ(hear(rank), "ready");
    return ranks;
  }
  // A kernel that nobody has compiled may take a minute.
  static std::string hear(ChildProcess& rank) { return rank.hear(300000).value_or("nothing"); }
  static void expect_all(std::vector<ChildProcess>& ranks, const std::string& line,
                         const std::string& answer) {
    for (ChildProcess& rank : ranks) rank.say(line);
    for (ChildProcess& rank : ranks) EXPECT_EQ(hear(rank), answer) << line;
  }
  // Expects that the files of both ranks are what ranks make that reach each other's memory.
  void expect_bits(const std::string& name, uint64_t seed) {
    NcclCase of = nccl_case(name);
    of.layer.expert_parallel.transport = compiler::Transport::kPeer;
    std::string why_not;
    const auto peers = GroupCase::open(of.layer, of.tokens, why_not, seed);
    ASSERT_NE(peers, nullptr) << why_not;
    EXPECT_EQ(peers->run(), (std::vector<uint32_t>{0, 0}));
    SCOPED_TRACE(fmt::format("inputs of seed {}", seed));
    peers->expect_files(dir_.path());
  }

  TestDir dir_;
};

class NcclCases : public NcclGroups, public ::testing::WithParamInterface<const char*> {};

TEST_P(NcclCases, GiveTheBitsOfPeersAlsoIfTheyAreRecorded) {
  const std::string name = GetParam();
  std::vector<ChildProcess> ranks = start_both(name);
  for (const uint64_t seed : {1, 2}) {
    expect_all(ranks, fmt::format("run {}", seed), "status 0");
    expect_all(ranks, "save", "saved");
    expect_bits(name, seed);
    if (HasFailure()) return;
  }
  expect_all(ranks, "record", "recorded");
  for (const uint64_t seed : {3, 4, 5}) {  // other routings
    expect_all(ranks, fmt::format("replay {}", seed), "status 0");
    expect_all(ranks, "save", "saved");
    expect_bits(name, seed);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, NcclCases, ::testing::Values("partial", "rows", "empty", "bf16"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(NcclGroups, TellAllRanksOfPlansThatDiffer) {
  std::vector<ChildProcess> ranks;
  ranks.push_back(start(0, "partial"));
  ranks.push_back(start(1, "other"));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string said = hear(ranks[rank]);
    EXPECT_TRUE(said.starts_with("failed ")) << said;
    EXPECT_NE(said.find("differ in hidden"), std::string::npos) << said;
  }
}

TEST_F(NcclGroups, GiveUpOnARankThatDoesNotCome) {
  ChildProcess alone = start(0, "partial", 3000);
  const std::string said = hear(alone);
  EXPECT_NE(said.find("was not done within 3000 ms"), std::string::npos) << said;
}

void kill_and_abort(std::vector<ChildProcess>& ranks) {
  ranks[1].signal(SIGKILL);
  ranks[1].wait();
  ranks[0].say("alone");
  const std::string said = ranks[0].hear(60000).value_or("nothing within a minute");
  EXPECT_TRUE(said.starts_with("aborted ")) << said;
  std::cout << said << " ms\n";
}

TEST_F(NcclGroups, LetASurvivorAbort) {
  std::vector<ChildProcess> ranks = start_both("partial");
  expect_all(ranks, "run 1", "status 0");
  kill_and_abort(ranks);
}

// NCCL keeps the communicator for the graph, and abort() returns all the same.
TEST_F(NcclGroups, LetASurvivorAbortARecordedCall) {
  std::vector<ChildProcess> ranks = start_both("partial");
  expect_all(ranks, "run 1", "status 0");
  expect_all(ranks, "record", "recorded");
  expect_all(ranks, "replay 2", "status 0");
  kill_and_abort(ranks);
}

void tell(const std::string& line) { std::cout << line << std::endl; }

int run_rank(char** arguments) {
  const auto fail = [](const Error& error) {
    tell("failed " + to_string(error));
    return 1;
  };
  const std::string folder = arguments[1];
  auto rank = NcclRank::open_device(std::stoi(arguments[0]));
  if (!rank) return fail(rank.error());
  const Result<void> opened =
      (*rank)->open_group(nccl_case(arguments[2]), folder + "/id", std::stoll(arguments[3]));
  if (!opened) return fail(opened.error());
  (*rank)->save_to(folder);
  tell("ready");
  std::string line;
  while (std::getline(std::cin, line)) tell((*rank)->obey(line));
  return 0;
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  if (argc == 6 && std::string_view(argv[1]) == "--rank")
    return moejit::testing::run_rank(argv + 2);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
