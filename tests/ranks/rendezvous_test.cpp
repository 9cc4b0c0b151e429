// SPDX-License-Identifier: Apache-2.0
// Processes that meet, in any order, and what the others hear of one that is late or dies.
#include "runtime/group/rendezvous_messages.h"
#include "runtime/group/rendezvous_socket.h"
#include "tests/ranks/meeting_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

TEST_F(MeetingTest, BringsRanksTogetherInAnyOrder) {
  for (const std::vector<int32_t>& order :
       {std::vector<int32_t>{0}, {0, 1}, {1, 0}, {2, 0, 3, 1}, {7, 6, 5, 4, 3, 2, 1, 0}}) {
    const auto count = static_cast<int32_t>(order.size());
    std::vector<ChildProcess> ranks;
    for (const int32_t rank : order) ranks.push_back(start(rank, count, kLong, {"hidden=256"}));
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::string files = std::string("01234567").substr(0, order.size());
      files[static_cast<std::size_t>(order[i])] = '-';  // that of the rank itself
      expect(ranks[i], "met " + files + " ");
    }
    expect_no_socket();
    expect_done(ranks);
  }
}

TEST_F(MeetingTest, BeginsForNobodyBeforeAllAreReady) {
  std::vector<ChildProcess> ranks;
  for (int32_t rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  for (const std::size_t rank : {0, 1}) ranks[rank].say("go on");
  for (const std::size_t rank : {0, 1}) EXPECT_EQ(ranks[rank].hear(200), std::nullopt);
  ranks[2].say("go on");
  for (ChildProcess& rank : ranks) expect(rank, "done ");
}

TEST_F(MeetingTest, NamesRanksThatDoNotCome) {
  constexpr int64_t kDeadline = 1500;
  ChildProcess first = start(0, 4, kDeadline), third = start(2, 4, kDeadline);
  for (ChildProcess* rank : {&first, &third}) {
    const int64_t ms = expect_failure(*rank, "interrupted", "ranks 1, 3 did not come to ");
    EXPECT_LE(ms, kDeadline + 1000);
    RecordProperty("ms", static_cast<int>(ms));
  }
  expect_no_socket();
}

TEST_F(MeetingTest, NamesRankZeroIfThatDoesNotCome) {
  ChildProcess rank = start(1, 2, 300);
  const int64_t ms = expect_failure(rank, "interrupted", "rank 0 did not come to " + path());
  EXPECT_GE(ms, 300);
  EXPECT_LE(ms, 1300);
}

TEST_F(MeetingTest, TakesALateRank) {
  std::vector<ChildProcess> ranks;
  ranks.push_back(start(0, 2));
  await_socket();
  ::usleep(300000);  // NOLINT(concurrency-mt-unsafe)
  ranks.push_back(start(1, 2));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  expect_done(ranks);
}

TEST_F(MeetingTest, TakesAStopShorterThanTheDeadline) {
  std::vector<ChildProcess> ranks;
  ranks.push_back(start(0, 2));
  await_socket();
  ranks[0].signal(SIGSTOP);
  ranks.push_back(start(1, 2));
  EXPECT_EQ(ranks[1].hear(200), std::nullopt);
  ranks[0].signal(SIGCONT);
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  expect_done(ranks);
}

TEST_F(MeetingTest, TellsOfAStoppedRankZero) {
  ChildProcess first = start(0, 2);
  await_socket();
  first.signal(SIGSTOP);
  ChildProcess second = start(1, 2, 300);
  expect_failure(second, "interrupted", "rank 0 did not answer at " + path());
  first.signal(SIGCONT);
  expect_failure(first, "interrupted", "rank 1 (process ");
}

// A rank whose process ends when it has said who it is: the kernel closes its link, as here.
TEST_F(MeetingTest, TellsOfARankThatDiesAmongThoseThatWait) {
  ChildProcess first = start(0, 4), second = start(1, 4);
  {
    const auto link = runtime::connect_to(path(), runtime::Deadline(kLong));
    ASSERT_TRUE(succeeded(link));
    const FileDescriptor file(::memfd_create("rank", MFD_CLOEXEC));
    const int files[] = {file.get()};
    ASSERT_EQ(
        runtime::send(*link, {.hello = {.rank = 2, .ranks = 4}}, files, runtime::Deadline(kLong)),
        0);
    runtime::Packet packet;
    int error = 0;
    std::optional<runtime::RendezvousMessage> present;
    for (int i = 0; i < 6000 && (!present || present->present != 7U); ++i) {
      if (link->receive(packet, error) == runtime::PacketSocket::Received::kPacket)
        present = runtime::decode(packet.text);
      ::usleep(10000);  // NOLINT(concurrency-mt-unsafe)
    }
    ASSERT_TRUE(present && present->present == 7U);
  }
  for (ChildProcess* rank : {&first, &second}) expect_failure(*rank, "interrupted", "rank 2 (pro");
  expect_no_socket();
}

TEST_F(MeetingTest, TellsOfARankThatGivesUp) {
  ChildProcess first = start(0, 3), second = start(1, 3, 500);
  expect_failure(second, "interrupted", "rank 2 did not come");
  expect_failure(first, "interrupted", "rank 1 could not open the group: rank 2 did not come");
  expect_no_socket();
}

// Killed before, while or after it connects, whatever comes: nobody waits for ever.
TEST_F(MeetingTest, SurvivesARankThatDiesAtAnyMoment) {
  for (int run = 0; run < 8; ++run) {
    ChildProcess first = start(0, 3, 20000), second = start(1, 3, 20000);
    ChildProcess killed = start(2, 3, 20000);
    ::usleep(static_cast<useconds_t>(run) * 2000);  // NOLINT(concurrency-mt-unsafe)
    killed.signal(SIGKILL);
    killed.wait();
    ChildProcess again = start(2, 3, 300);
    // It came too late for those who knew its forerunner, or comes in its place.
    const std::string line = again.hear().value_or("");
    const bool comes = line.starts_with("met ");
    for (ChildProcess* rank : {&first, &second}) {
      const std::string heard = rank->hear().value_or("");
      if (comes)
        EXPECT_TRUE(heard.starts_with("met ")) << heard;
      else
        EXPECT_TRUE(heard.starts_with("failed ") || heard.starts_with("met ")) << heard;
    }
    EXPECT_TRUE(comes || line.starts_with("failed ")) << line;
  }
}

TEST_F(MeetingTest, TellsOfARankThatDiesBeforeItIsReady) {
  for (const int32_t killed : {0, 1, 2}) {
    std::vector<ChildProcess> ranks;
    for (int32_t rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3));
    for (ChildProcess& rank : ranks) expect(rank, "met ");
    ranks[static_cast<std::size_t>(killed)].signal(SIGKILL);
    const std::string name = "rank " + std::to_string(killed);
    for (int32_t rank = 0; rank < 3; ++rank) {
      if (rank == killed) continue;
      ChildProcess& survivor = ranks[static_cast<std::size_t>(rank)];
      survivor.say("go on");
      expect_failure(survivor, "interrupted", name);
    }
  }
}

TEST_F(MeetingTest, TellsOfARankThatDiesWhileItWaitsForTheOthers) {
  std::vector<ChildProcess> ranks;
  for (int32_t rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  ranks[1].say("go on");
  EXPECT_EQ(ranks[1].hear(200), std::nullopt);  // it is ready
  ranks[1].signal(SIGKILL);
  ranks[1].wait();
  // Whoever was ready counts: the others begin, and the status word of their first call tells.
  for (const std::size_t rank : {0, 2}) ranks[rank].say("go on");
  for (const std::size_t rank : {0, 2}) expect(ranks[rank], "done ");
}

TEST_F(MeetingTest, NamesRanksThatAreNotReadyInTime) {
  std::vector<ChildProcess> ranks;
  for (int32_t rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, 2, 1000));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  ranks[0].say("go on");
  expect_failure(ranks[0], "interrupted", "rank 1 got no further at " + path() + " within 1000 ms");
  ranks[1].say("go on");
  expect_failure(ranks[1], "interrupted", "rank 1 got no further");
}

TEST_F(MeetingTest, TellsAllOfARankThatCannotMapWhatItMet) {
  for (const std::size_t failing : {0, 1}) {
    std::vector<ChildProcess> ranks;
    for (int32_t rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3));
    for (ChildProcess& rank : ranks) expect(rank, "met ");
    for (std::size_t rank = 0; rank < 3; ++rank) ranks[rank].say(rank == failing ? "fail" : "go");
    for (std::size_t rank = 0; rank < 3; ++rank)
      expect_failure(ranks[rank], "unsupported",
                     rank == failing ? " no link joins"
                                     : "rank " + std::to_string(failing) +
                                           " could not open the group: no link joins");
  }
}

TEST_F(MeetingTest, MeetsAgainAtThePathOfADeadGroup) {
  {
    ChildProcess first = start(0, 2);
    await_socket();
    first.signal(SIGKILL);
    first.wait();
    EXPECT_TRUE(std::filesystem::exists(path()));
  }
  ChildProcess alone = start(1, 2, 200);
  expect_failure(alone, "interrupted", "the socket there is of a process that is gone");
  std::vector<ChildProcess> ranks;
  for (int32_t rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, 2));
  for (ChildProcess& rank : ranks) expect(rank, "met ");
  expect_no_socket();
  expect_done(ranks);
}

}  // namespace
}  // namespace moejit::testing
