// SPDX-License-Identifier: Apache-2.0
// Transports over NCCL with a fake libnccl.so.2, whose ranks are threads here: how they meet, what
// moves where, and that no wait outlasts its deadline.
#include "runtime/nccl_transport.h"

#include "runtime/device_memory.h"
#include "runtime/group.h"
#include "runtime/group/group_state.h"
#include "runtime/nccl/nccl_api.h"
#include "tests/driver/driver_fixture.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

namespace moejit::testing {
namespace {

using compiler::Layer;
using compiler::Movement;
using compiler::Plan;
using runtime::BlockTransfer;
using runtime::DeviceMemory;
using runtime::Group;
using runtime::NcclId;
using runtime::Transport;
using namespace std::chrono_literals;

Plan plan_of(int32_t rank, int32_t hidden = 144,
             compiler::Transport transport = compiler::Transport::kNccl) {
  Layer layer{.name = "over_nccl",
              .experts = 8,
              .top_k = 2,
              .hidden = hidden,
              .intermediate = 80,
              .splits_alignment = 16,
              .max_tokens = 12,
              .dispatch = compiler::Dispatch::kFp8};
  layer.expert_parallel = {.ranks = 2, .transport = transport};
  layer.local_experts = 4;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return *compiler::plan_layer(layer, {}, {.rank = rank});
}

class NcclTransports : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    cuda()->devices = 2;
    for (int32_t rank = 0; rank < 2; ++rank) devices_.push_back(open(rank));
    const auto id = runtime::make_nccl_id();
    ASSERT_TRUE(succeeded(id));
    id_ = *id;
  }
  void TearDown() override {
    devices_.clear();
    DriverTest::TearDown();
  }
  runtime::Device& device(int32_t rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  auto open_rank(int32_t rank, int64_t deadline_ms = 20000) {
    return runtime::open_nccl_transport(
        device(rank), {.id = id_, .rank = rank, .ranks = 2, .deadline_ms = deadline_ms});
  }
  // Calls of_rank(rank, transport) of each rank in a thread of its own.
  template <typename OfRank>
  void on_both(OfRank of_rank, int64_t deadline_ms = 20000) {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([this, rank, of_rank, deadline_ms] {
        auto transport = open_rank(rank, deadline_ms);
        ASSERT_TRUE(succeeded(transport));
        of_rank(rank, std::move(*transport));
      });
  }
  static void expect_error(const Error& error, ErrorCode code, std::string_view words) {
    EXPECT_EQ(error.code, code);
    EXPECT_NE((error.message + " " + error.hint).find(words), std::string::npos)
        << error.message << " (" << error.hint << ")";
  }

  std::vector<std::unique_ptr<runtime::Device>> devices_;
  NcclId id_ = {};
};

TEST_F(NcclTransports, MakeAnotherIdEachTime) {
  const auto other = runtime::make_nccl_id();
  ASSERT_TRUE(succeeded(other));
  EXPECT_NE(*other, id_);
}

// Byte b of block i of rank r is 100 r + 10 i + b.
TEST_F(NcclTransports, BringBlocksWhereTheyBelong) {
  on_both([this](int32_t rank, std::unique_ptr<Transport> transport) {
    EXPECT_EQ(transport->rank(), rank);
    EXPECT_EQ(transport->ranks(), 2);
    constexpr int64_t kBytes = 3, kAll = 2 * kBytes;
    std::vector<uint8_t> own;
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t b = 0; b < kBytes; ++b)
        own.push_back(static_cast<uint8_t>(100 * rank + 10 * i + b));
    auto from = DeviceMemory::allocate(device(rank), kAll);
    auto gathered = DeviceMemory::allocate(device(rank), kAll);
    auto exchanged = DeviceMemory::allocate(device(rank), kAll);
    ASSERT_TRUE(from && gathered && exchanged);
    ASSERT_TRUE(succeeded(device(rank).copy_to_device(from->address(), own.data(), kAll)));
    const BlockTransfer gather{Movement::kGather, from->address(), gathered->address(), kBytes};
    const BlockTransfer exchange{Movement::kExchange, from->address(), exchanged->address(),
                                 kBytes};
    const auto read = [&](const DeviceMemory& memory) {
      std::vector<uint8_t> bytes(kAll);
      EXPECT_TRUE(succeeded(device(rank).copy_to_host(bytes.data(), memory.address(), kAll)));
      return bytes;
    };
    const auto r = static_cast<uint8_t>(10 * rank);
    const std::vector<uint8_t> all = {0, 1, 2, 100, 101, 102};
    const std::vector<uint8_t> mine = {r,
                                       static_cast<uint8_t>(r + 1),
                                       static_cast<uint8_t>(r + 2),
                                       static_cast<uint8_t>(100 + r),
                                       static_cast<uint8_t>(101 + r),
                                       static_cast<uint8_t>(102 + r)};
    // Gathers alone are collectives of NCCL, beside exchanges they are sends and receives.
    ASSERT_TRUE(succeeded(transport->move({&gather, 1}, nullptr)));
    EXPECT_EQ(read(*gathered), all);
    ASSERT_TRUE(succeeded(device(rank).fill(gathered->address(), std::byte{0}, kAll, nullptr)));
    const std::array<BlockTransfer, 2> both = {exchange, gather};
    ASSERT_TRUE(succeeded(transport->move(both, nullptr)));
    EXPECT_EQ(read(*gathered), all);
    EXPECT_EQ(read(*exchanged), mine);
    EXPECT_TRUE(succeeded(transport->check()));
  });
}

TEST_F(NcclTransports, OpenGroupsOfPlansThatAgree) {
  on_both([this](int32_t rank, std::unique_ptr<Transport> transport) {
    const auto group = Group::open(plan_of(rank), device(rank), std::move(transport));
    ASSERT_TRUE(succeeded(group));
    EXPECT_EQ((*group)->rank(), rank);
    const auto status = (*group)->status();
    ASSERT_TRUE(succeeded(status));
    EXPECT_EQ(*status, 0U);
  });
}

TEST_F(NcclTransports, TellAllRanksOfPlansThatDiffer) {
  on_both([this](int32_t rank, std::unique_ptr<Transport> transport) {
    const auto group =
        Group::open(plan_of(rank, 144 + 16 * rank), device(rank), std::move(transport));
    ASSERT_FALSE(group);
    expect_error(group.error(), ErrorCode::kTensorMismatch, "of a group differ in hidden: ");
  });
}

TEST_F(NcclTransports, GiveUpOnARankThatDoesNotCome) {
  const auto began = std::chrono::steady_clock::now();
  const auto alone = open_rank(0, 200);
  ASSERT_FALSE(alone);
  expect_error(alone.error(), ErrorCode::kInterrupted, "was not done within 200 ms");
  const auto waited = std::chrono::steady_clock::now() - began;
  EXPECT_GE(waited, 200ms);
  EXPECT_LT(waited, 10s);
}

TEST_F(NcclTransports, GiveUpOnARankThatTellsNoPlan) {
  on_both(
      [this](int32_t rank, std::unique_ptr<Transport> transport) {
        if (rank == 1) return;  // it came, and left
        const auto began = std::chrono::steady_clock::now();
        const auto group = Group::open(plan_of(rank), device(rank), std::move(transport));
        ASSERT_FALSE(group);
        EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
        expect_error(group.error(), ErrorCode::kInterrupted,
                     "not all of the 2 ranks told what their plans are within 300 ms");
      },
      300);
}

TEST_F(NcclTransports, EndWhatWaitsIfTheyAreAborted) {
  on_both([this](int32_t rank, std::unique_ptr<Transport> transport) {
    auto group = Group::open(plan_of(rank), device(rank), std::move(transport));
    ASSERT_TRUE(succeeded(group));
    if (rank == 1) return;
    std::byte block[2] = {};
    const BlockTransfer alone{Movement::kGather, block, block, 1};
    const auto began = std::chrono::steady_clock::now();
    const std::jthread ends([&] {
      std::this_thread::sleep_for(100ms);
      (*group)->abort();
    });
    Transport& of_group = *(*group)->state()->transport;
    const auto moved = of_group.move({&alone, 1}, nullptr);
    ASSERT_FALSE(moved);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
    expect_error(moved.error(), ErrorCode::kDriver, "ncclGroupEnd failed with 6: remote process");
    const auto again = of_group.move({&alone, 1}, nullptr);
    ASSERT_FALSE(again);
    expect_error(again.error(), ErrorCode::kInvalidState, "open another group on all ranks");
    EXPECT_EQ((*group)->status().error().code, ErrorCode::kInvalidState);
    EXPECT_EQ((*group)->reset().error().code, ErrorCode::kInvalidState);
  });
}

// NCCL ends no communicator before the graphs are gone that its steps were recorded into, and
// whoever has to destroy these goes on.
TEST_F(NcclTransports, EndWhileRecordedGraphsLive) {
  on_both([this](int32_t rank, std::unique_ptr<Transport> transport) {
    const bool is_aborted = rank == 0;
    ASSERT_EQ(device(rank).enter(), true);
    const runtime::DriverApi& cuda = **runtime::driver_api();
    CUstream stream = nullptr;
    ASSERT_EQ(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuda.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    std::byte block[2] = {};
    const BlockTransfer gather{Movement::kGather, block, block, 1};
    ASSERT_TRUE(succeeded(transport->move({&gather, 1}, stream)));
    CUgraph graph = nullptr;
    ASSERT_EQ(cuda.stream_end_capture(stream, &graph), CUDA_SUCCESS);
    const auto began = std::chrono::steady_clock::now();
    if (is_aborted) transport->abort();
    transport.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
    ASSERT_EQ(cuda.graph_destroy(graph), CUDA_SUCCESS);
    ASSERT_EQ(cuda.stream_destroy(stream), CUDA_SUCCESS);
    device(rank).leave();
  });
  while (cuda()->pushed != cuda()->popped) std::this_thread::sleep_for(1ms);
}

// A communicator of the caller's stays the caller's: it is neither aborted nor destroyed.
TEST_F(NcclTransports, TakeCommunicatorsOfTheCaller) {
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([this, rank] {
      const runtime::NcclApi& nccl = **runtime::nccl_api();
      runtime::NcclUniqueId id;
      std::memcpy(id.internal, id_.data(), id_.size());
      runtime::NcclConfig config{.blocking = 0};
      runtime::NcclComm comm = nullptr;
      ASSERT_EQ(device(rank).enter(), true);
      runtime::NcclResult result = nccl.comm_init_rank_config(&comm, 2, id, rank, &config);
      while (result == runtime::kNcclInProgress) nccl.comm_get_async_error(comm, &result);
      ASSERT_EQ(result, runtime::kNcclSuccess);
      device(rank).leave();
      auto adopted = runtime::adopt_nccl_communicator(device(rank), comm, 20000);
      ASSERT_TRUE(succeeded(adopted));
      EXPECT_EQ((*adopted)->rank(), rank);
      EXPECT_EQ((*adopted)->ranks(), 2);
      {
        const auto group = Group::open(plan_of(rank), device(rank), std::move(*adopted));
        ASSERT_TRUE(succeeded(group));
        (*group)->abort();
      }
      nccl.comm_get_async_error(comm, &result);
      EXPECT_EQ(result, runtime::kNcclSuccess);
      ASSERT_EQ(device(rank).enter(), true);
      EXPECT_EQ(nccl.comm_destroy(comm), runtime::kNcclSuccess);
      device(rank).leave();
    });
}

TEST_F(NcclTransports, RefuseWhatIsNoPlace) {
  const auto refuse = [this](int32_t rank, int64_t deadline_ms) {
    const auto refused = open_rank(rank, deadline_ms);
    ASSERT_FALSE(refused);
    expect_error(refused.error(), ErrorCode::kInvalidValue, "wanted a rank below their number");
  };
  devices_.push_back(open(1));  // for rank 2
  refuse(2, 1000);
  refuse(0, 0);
  refuse(0, 25 * 60 * 60 * 1000);
  const auto null = runtime::adopt_nccl_communicator(device(0), nullptr);
  ASSERT_FALSE(null);
  expect_error(null.error(), ErrorCode::kInvalidValue, "the communicator is null");
}

}  // namespace
}  // namespace moejit::testing
