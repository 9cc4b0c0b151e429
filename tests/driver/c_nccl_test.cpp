// SPDX-License-Identifier: Apache-2.0
// Groups over NCCL through the C interface, with stand-ins for the driver and for libnccl.so.2,
// which the process has open already, as one that has imported torch has it: no other is found.
#include "runtime/nccl/nccl_api.h"
#include "tests/driver/driver_fixture.h"

#include <array>
#include <chrono>
#include <dlfcn.h>
#include <moejit/moejit_group.h>
#include <thread>

namespace moejit::testing {
namespace {

constexpr std::string_view kLayer =
    R"({"experts": 8, "top_k": 2, "hidden": 144, "intermediate": 80, "splits_alignment": 16,
        "max_tokens": 12, "dispatch": "fp8", "expert_parallel": {"ranks": 2, "transport": "nccl"}})";

// What a rank has, in a thread of its own.
struct Rank {
  explicit Rank(int32_t rank) {
    EXPECT_EQ(moejit_device_open_cuda(rank, &device), MOEJIT_OK);
    EXPECT_EQ(moejit_group_layer_create(kLayer.data(), kLayer.size(), "cuda:sm_90a", rank, nullptr,
                                        &layer),
              MOEJIT_OK)
        << moejit_last_error()->message;
  }
  ~Rank() {
    moejit_group_destroy(group);
    moejit_plan_destroy(layer);
    moejit_device_destroy(device);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  moejit_device* device = nullptr;
  moejit_plan* layer = nullptr;
  moejit_group* group = nullptr;
};

class CGroupsOverNccl : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    DriverTest::SetUpTestSuite();
    opened_ = ::dlopen(MOEJIT_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(opened_, nullptr) << ::dlerror();
  }
  void SetUp() override {
    DriverTest::SetUp();
    cuda()->devices = 2;
    ASSERT_EQ(moejit_nccl_make_id(id_.data()), MOEJIT_OK) << moejit_last_error()->message;
  }
  template <typename Function>
  static Function* nccl(const char* symbol) {
    return reinterpret_cast<Function*>(::dlsym(opened_, symbol));
  }
  template <typename OfRank>
  static void on_both(OfRank of_rank) {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < 2; ++rank) threads.emplace_back([=] { of_rank(rank); });
  }
  // Returns a communicator of a caller's, on the GPU of the thread's context.
  runtime::NcclComm make_communicator(int32_t rank) const {
    auto* const make = nccl<runtime::NcclResult(runtime::NcclComm*, int, runtime::NcclUniqueId, int,
                                                runtime::NcclConfig*)>("ncclCommInitRankConfig");
    auto* const ask =
        nccl<runtime::NcclResult(runtime::NcclComm, runtime::NcclResult*)>("ncclCommGetAsyncError");
    runtime::NcclUniqueId id;
    std::memcpy(id.internal, id_.data(), id_.size());
    runtime::NcclConfig config{.blocking = 0};
    runtime::NcclComm made = nullptr;
    runtime::NcclResult result = make(&made, 2, id, rank, &config);
    while (result == runtime::kNcclInProgress) ask(made, &result);
    EXPECT_EQ(result, runtime::kNcclSuccess);
    return made;
  }

  static inline void* opened_ = nullptr;
  std::array<uint8_t, MOEJIT_NCCL_ID_BYTES> id_ = {};
};

TEST_F(CGroupsOverNccl, OpenByAnId) {
  on_both([this](int32_t number) {
    Rank rank(number);
    ASSERT_EQ(moejit_group_open_nccl(rank.layer, rank.device, id_.data(), 20000, &rank.group),
              MOEJIT_OK)
        << moejit_last_error()->message;
    moejit_group_info info = {};
    info.struct_size = sizeof(info);
    ASSERT_EQ(moejit_group_get_info(rank.group, &info), MOEJIT_OK);
    EXPECT_EQ(info.rank, number);
    EXPECT_EQ(info.ranks, 2);
    uint32_t status = 1;
    EXPECT_EQ(moejit_group_status(rank.group, &status), MOEJIT_OK);
    EXPECT_EQ(status, 0U);
  });
}

// It stays the caller's: the group neither aborts nor destroys it.
TEST_F(CGroupsOverNccl, TakeACommunicatorOfTheCaller) {
  auto* const destroy = nccl<runtime::NcclResult(runtime::NcclComm)>("ncclCommDestroy");
  auto* const ask =
      nccl<runtime::NcclResult(runtime::NcclComm, runtime::NcclResult*)>("ncclCommGetAsyncError");
  on_both([=, this](int32_t number) {
    const auto device = open(number);
    ASSERT_EQ(device->enter(), true);
    const runtime::NcclComm own = make_communicator(number);
    {
      Rank rank(number);
      moejit_group* refused = nullptr;
      EXPECT_EQ(moejit_group_adopt_nccl(rank.layer, rank.device, nullptr, &refused),
                MOEJIT_ERROR_INVALID_VALUE);
      ASSERT_EQ(moejit_group_adopt_nccl(rank.layer, rank.device, own, &rank.group), MOEJIT_OK)
          << moejit_last_error()->message;
      uint32_t status = 1;
      EXPECT_EQ(moejit_group_status(rank.group, &status), MOEJIT_OK);
      EXPECT_EQ(status, 0U);
      EXPECT_EQ(moejit_group_abort(rank.group), MOEJIT_OK);
      EXPECT_EQ(moejit_group_status(rank.group, &status), MOEJIT_ERROR_INVALID_STATE);
    }
    runtime::NcclResult state = runtime::kNcclInProgress;
    EXPECT_EQ(ask(own, &state), runtime::kNcclSuccess);
    EXPECT_EQ(state, runtime::kNcclSuccess);
    EXPECT_EQ(destroy(own), runtime::kNcclSuccess);
    device->leave();
  });
}

TEST_F(CGroupsOverNccl, RefuseACommunicatorOfOtherRanks) {
  on_both([this](int32_t number) {
    const auto device = open(number);
    ASSERT_EQ(device->enter(), true);
    const runtime::NcclComm own = make_communicator(number);
    Rank other(1 - number);
    EXPECT_EQ(moejit_group_adopt_nccl(other.layer, other.device, own, &other.group),
              MOEJIT_ERROR_INVALID_VALUE);
    const std::string told = moejit_last_error()->message;
    EXPECT_NE(told.find("the transport is that of rank"), std::string::npos) << told;
    EXPECT_EQ(other.group, nullptr);
    device->leave();
  });
}

}  // namespace
}  // namespace moejit::testing
