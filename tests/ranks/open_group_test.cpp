// SPDX-License-Identifier: Apache-2.0
// Groups of processes with memory of their own, on GPUs of the fake libcuda, whose memory processes
// really share: what they map, what is left of a rank that dies, and opening again.
#include "compiler/compiler.h"
#include "runtime/group.h"
#include "tests/driver/driver_fixture.h"
#include "tests/support/child_process.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>

namespace moejit::testing {
namespace {

class OpenGroupTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    cuda()->devices = 4;
  }
  std::string path() const { return (dir_ / "group").string(); }
  ChildProcess start(int32_t rank, int32_t ranks, int32_t gpu = -1, int64_t max_tokens = 12,
                     int64_t deadline_ms = 60000) const {
    return ChildProcess({MOEJIT_GROUP_PROCESS, path(), std::to_string(rank), std::to_string(ranks),
                         std::to_string(deadline_ms), std::to_string(gpu < 0 ? rank : gpu),
                         std::to_string(max_tokens)});
  }
  std::vector<ChildProcess> start_all(int32_t ranks) const {
    std::vector<ChildProcess> all;
    for (int32_t rank = 0; rank < ranks; ++rank) all.push_back(start(rank, ranks));
    for (ChildProcess& rank : all) expect(rank, "open ");
    return all;
  }
  static std::string expect(ChildProcess& rank, const std::string& begin) {
    const std::string line = rank.hear().value_or("nothing");
    EXPECT_TRUE(line.starts_with(begin)) << line << ", wanted " << begin;
    return line;
  }
  static void expect_failure(ChildProcess& rank, const std::string& code,
                             const std::string& words) {
    const std::string line = expect(rank, "failed " + code + " ");
    EXPECT_NE(line.find(words), std::string::npos) << line << ", wanted " << words;
  }
  static std::string ask(ChildProcess& rank, const std::string& line) {
    rank.say(line);
    return rank.hear().value_or("nothing");
  }
  static void close(std::vector<ChildProcess>& ranks) {
    for (ChildProcess& rank : ranks) {
      EXPECT_EQ(ask(rank, "close"), "closed 0");
      EXPECT_EQ(rank.wait(), 0);
    }
  }
  // What a process that was killed has not given back is none of the product's.
  static void forget_the_dead() {
    cuda()->shared_taken = cuda()->shared_released.load();
    cuda()->ranges_reserved = cuda()->ranges_freed.load();
    cuda()->primaries_retained = cuda()->primaries_released.load();
    cuda()->pushed = cuda()->popped.load();
  }

  TestDir dir_;
};

TEST_F(OpenGroupTest, MapsTheMemoryOfAllRanksZeroed) {
  for (const int32_t ranks : {1, 2, 4}) {
    std::vector<ChildProcess> all = start_all(ranks);
    EXPECT_FALSE(std::filesystem::exists(path()));
    for (int32_t from = 0; from < ranks; ++from)
      for (int32_t to = 0; to < ranks; ++to) {
        ChildProcess &writer = all[static_cast<std::size_t>(from)],
                     &owner = all[static_cast<std::size_t>(to)];
        EXPECT_EQ(ask(owner, fmt::format("read {}", to)),
                  fmt::format("read {}", from == 0 ? 0 : from));
        EXPECT_EQ(ask(writer, fmt::format("write {} {}", to, from + 1)), "wrote");
        EXPECT_EQ(ask(owner, fmt::format("read {}", to)), fmt::format("read {}", from + 1));
      }
    close(all);
  }
}

TEST_F(OpenGroupTest, AllocatesWhatThePlanSaysInTheDriversSteps) {
  std::vector<ChildProcess> all;
  for (int32_t rank = 0; rank < 2; ++rank) all.push_back(start(rank, 2, -1, 6000));
  for (ChildProcess& rank : all) {
    int64_t planned = 0, allocated = 0;
    ASSERT_EQ(std::sscanf(expect(rank, "open ").c_str(), "open %ld %ld", &planned, &allocated), 2);
    constexpr int64_t kStep = 2 << 20;
    EXPECT_GT(planned, kStep);
    EXPECT_EQ(allocated, (planned + kStep - 1) / kStep * kStep);
  }
  close(all);
}

TEST_F(OpenGroupTest, KeepsTheMemoryOfARankThatDies) {
  std::vector<ChildProcess> all = start_all(2);
  EXPECT_EQ(ask(all[1], "write 1 7"), "wrote");
  all[1].signal(SIGKILL);
  all[1].wait();
  EXPECT_EQ(ask(all[0], "read 1"), "read 7");
  EXPECT_EQ(ask(all[0], "write 1 8"), "wrote");
  EXPECT_EQ(ask(all[0], "close"), "closed 0");
  all[0].wait();
  forget_the_dead();
}

// Survivors keep their addresses, memory holds zeros again, and the dead rank's memory is gone.
TEST_F(OpenGroupTest, IsOpenedAgainWithANewProcess) {
  for (const std::size_t dead : {std::size_t{1}, std::size_t{0}}) {
    std::vector<ChildProcess> all = start_all(3);
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ask(all[rank], fmt::format("write {} 9", rank)), "wrote");
    std::vector<std::string> addresses;
    for (std::size_t of = 0; of < 3; ++of)
      addresses.push_back(ask(all[2], fmt::format("at {}", of)));
    all[dead].signal(SIGKILL);
    all[dead].wait();
    const std::size_t other = 1 - dead;
    for (const std::size_t survivor : {other, std::size_t{2}}) all[survivor].say("reopen 60000");
    ChildProcess fresh = start(static_cast<int32_t>(dead), 3);
    expect(fresh, "open ");
    for (const std::size_t survivor : {other, std::size_t{2}}) expect(all[survivor], "reopened");
    for (std::size_t of = 0; of < 3; ++of) {
      EXPECT_EQ(ask(all[2], fmt::format("at {}", of)), addresses[of]);
      EXPECT_EQ(ask(all[2], fmt::format("read {}", of)), "read 0");
      EXPECT_EQ(ask(fresh, fmt::format("read {}", of)), "read 0");
    }
    EXPECT_EQ(ask(fresh, "write 2 5"), "wrote");
    EXPECT_EQ(ask(all[2], "read 2"), "read 5");
    EXPECT_EQ(ask(all[2], fmt::format("write {} 6", dead)), "wrote");
    EXPECT_EQ(ask(fresh, fmt::format("read {}", dead)), "read 6");
    EXPECT_EQ(ask(all[other], fmt::format("read {}", dead)), "read 6");
    for (ChildProcess* rank : {&all[other], &all[2], &fresh})
      EXPECT_EQ(ask(*rank, "close"), "closed 0");
    for (ChildProcess* rank : {&all[other], &all[2], &fresh}) rank->wait();
    forget_the_dead();
  }
}

TEST_F(OpenGroupTest, IsNotBrokenByAReopeningToWhichNobodyComes) {
  std::vector<ChildProcess> all = start_all(2);
  all[0].say("reopen 200");
  expect_failure(all[0], "interrupted", "rank 1 did not come to ");
  EXPECT_EQ(ask(all[0], "reset"), "reset");  // nothing was unmapped
  for (ChildProcess& rank : all) rank.say("reopen 60000");
  for (ChildProcess& rank : all) expect(rank, "reopened");
  close(all);
}

TEST_F(OpenGroupTest, TakesNoCallOfAChildMadeByFork) {
  std::vector<ChildProcess> all = start_all(2);
  const std::string said = ask(all[1], "fork");
  const std::string sentence =
      fmt::format("invalid_state the group is one of process {}, and", all[1].id());
  std::size_t count = 0;
  for (std::size_t at = said.find(sentence); at != std::string::npos;
       at = said.find(sentence, at + 1))
    ++count;
  EXPECT_EQ(count, 4U) << said;
  EXPECT_EQ(ask(all[1], "write 0 3"), "wrote");  // the parent goes on
  close(all);
  forget_the_dead();
}

TEST_F(OpenGroupTest, NamesGpusThatNoLinkJoins) {
  for (const bool is_hidden : {false, true}) {
    cuda()->has_no_links = 1;
    cuda()->hides_peers = is_hidden ? 1 : 0;
    ChildProcess first = start(0, 2), second = start(1, 2);
    if (is_hidden) {
      for (ChildProcess* rank : {&first, &second})
        expect_failure(*rank, "driver", "cuMemSetAccess failed with CUDA_ERROR_INVALID_DEVICE");
    } else {
      for (ChildProcess* rank : {&first, &second})
        expect_failure(*rank, "unsupported", "cannot reach memory of the GPU 00000000:1");
    }
    for (ChildProcess* rank : {&first, &second}) EXPECT_EQ(rank->hear(), "closed 0");
  }
}

TEST_F(OpenGroupTest, NamesAGpuOfTwoRanks) {
  ChildProcess first = start(0, 2, 1), second = start(1, 2, 1);
  for (ChildProcess* rank : {&first, &second})
    expect_failure(*rank, "invalid_value", "ranks 0 and 1 are both on the GPU 00000000:11:00.0");
  for (ChildProcess* rank : {&first, &second}) EXPECT_EQ(rank->hear(), "closed 0");
}

TEST_F(OpenGroupTest, NamesAGpuThatSharesNothing) {
  cuda()->shares_nothing = 1;
  ChildProcess rank = start(0, 2);
  expect_failure(rank, "unsupported", "GPU 0 shares no memory with other processes by files");
  EXPECT_EQ(rank.hear(), "closed 0");
}

TEST_F(OpenGroupTest, NamesTheFieldInWhichPlansDiffer) {
  ChildProcess first = start(0, 2), second = start(1, 2, 1, 13);
  for (ChildProcess* rank : {&first, &second}) {
    expect_failure(*rank, "tensor_mismatch",
                   "ranks 0 and 1 of a group differ in max_tokens: 12 and 13");
    EXPECT_EQ(rank->hear(), "closed 0");
  }
}

TEST_F(OpenGroupTest, NamesTheBytesThatAreNotThere) {
  cuda()->memory_bytes = 1 << 20;
  ChildProcess rank = start(0, 1);
  expect_failure(rank, "out_of_memory", "cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(rank.hear(), "closed 0");
}

TEST_F(OpenGroupTest, HandsOutFilesThatCloseOnExec) {
  const auto device = open(0);
  const auto heap = device->allocate_heap(1);
  ASSERT_TRUE(succeeded(heap));
  const auto file = (*heap)->file();
  ASSERT_TRUE(succeeded(file));
  EXPECT_EQ(::fcntl(file->get(), F_GETFD), FD_CLOEXEC);
}

// Each call of the driver fails once.
TEST_F(OpenGroupTest, LeavesNothingWhereACallFails) {
  compiler::Layer layer{.name = "alone",
                        .experts = 8,
                        .local_experts = 8,
                        .top_k = 2,
                        .hidden = 144,
                        .intermediate = 80,
                        .splits_alignment = 16,
                        .max_tokens = 12,
                        .dispatch = compiler::Dispatch::kFp8};
  layer.expert_parallel.ranks = 1;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const auto plan = compiler::plan_layer(layer, {});
  ASSERT_TRUE(succeeded(plan));
  const auto device = open(0);
  const int files = open_files();
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    cuda()->failed = 0;
    cuda()->fail_with = CUDA_ERROR_UNKNOWN;
    cuda()->fail_at = cuda()->calls + call;
    auto group = runtime::Group::open(*plan, *device, {.path = path(), .deadline_ms = 5000});
    const int64_t failed = cuda()->failed;
    cuda()->fail_at = 0;  // the end of the group succeeds
    EXPECT_FALSE(std::filesystem::exists(path()));
    if (failed == 0) {
      EXPECT_TRUE(succeeded(group));
      break;
    }
    const auto which = static_cast<CudaCall>(failed - 1);
    if (which == CudaCall::ctx_pop_current) {
      CUcontext popped = nullptr;
      EXPECT_EQ(api().ctx_pop_current(&popped), CUDA_SUCCESS);
      continue;
    }
    ++failures;
    ASSERT_FALSE(group) << failed;
    EXPECT_EQ(group.error().code, ErrorCode::kDriver) << to_string(group.error());
    EXPECT_EQ(cuda()->shared_taken, cuda()->shared_released) << to_string(group.error());
    EXPECT_EQ(cuda()->ranges_reserved, cuda()->ranges_freed) << to_string(group.error());
    EXPECT_EQ(open_files(), files) << to_string(group.error());
  }
  EXPECT_GE(failures, 12);
}

// A rank that is killed while the others map its memory ends their opening.
TEST_F(OpenGroupTest, SurvivesARankThatDiesAtAnyMoment) {
  for (int run = 0; run < 8; ++run) {
    ChildProcess first = start(0, 2, 0, 12, 500), second = start(1, 2, 1, 12, 500);
    ::usleep(static_cast<useconds_t>(run) * 5000);  // NOLINT(concurrency-mt-unsafe)
    second.signal(SIGKILL);
    second.wait();
    const std::string line = first.hear().value_or("nothing");
    EXPECT_TRUE(line.starts_with("open ") || line.starts_with("failed interrupted ")) << line;
    if (line.starts_with("open ")) {
      EXPECT_EQ(ask(first, "read 1"), "read 0");
      first.say("close");
    }
    EXPECT_EQ(first.hear(), "closed 0");
    first.wait();
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  forget_the_dead();
}

}  // namespace
}  // namespace moejit::testing
