// SPDX-License-Identifier: Apache-2.0
// What a call of a group's layer asks of the host: which functions of the driver it calls, and that
// it allocates nothing. Two ranks through the C interface, on two GPUs of the fake libcuda.
#include "tests/driver/driver_fixture.h"
#include "tests/driver/group_ranks.h"
#include "tests/unit/c_api/counted_malloc.h"

#include <map>

namespace moejit::testing {
namespace {

using Pass = GroupRank::Pass;
using Counts = std::map<std::string_view, int64_t>;

constexpr std::string_view kLayer =
    R"({"experts": 8, "top_k": 2, "hidden": 144, "intermediate": 80, "splits_alignment": 16,
        "max_tokens": 12, "dispatch": "fp8", "passes": ["forward", "backward"],
        "expert_parallel": {"ranks": 2}})";

constexpr std::array kNames = {
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) std::string_view(#name),
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION
};

class GroupCalls : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    cuda()->devices = 2;
    const auto layer = compiler::parse_layer(kLayer, "layer");
    ASSERT_TRUE(succeeded(layer));
    const auto plan = compiler::plan_layer(*layer, {}, {.rank = 0});
    ASSERT_TRUE(succeeded(plan));
    DriverLayer::describe_kernels(*plan, *nvrtc());
    moejit_engine_options options{};
    options.struct_size = sizeof(options);
    options.memory_only = 1;
    ASSERT_EQ(moejit_engine_create(&options, &engine_), MOEJIT_OK);
    auto ranks = open_group_ranks(kLayer, engine_, true);
    ASSERT_TRUE(succeeded(ranks));
    ranks_ = std::move(*ranks);
  }
  void TearDown() override {
    ranks_.clear();
    moejit_engine_destroy(engine_);
    DriverTest::TearDown();
  }
  GroupRank& rank() { return *ranks_[0]; }
  void call(Pass pass) { ASSERT_EQ(rank().call(pass), MOEJIT_OK) << moejit_last_error()->message; }
  // Returns how often a call of rank 0 calls which functions of the driver.
  Counts calls_of_driver(Pass pass) {
    std::array<int64_t, kNames.size()> before{};
    for (std::size_t i = 0; i < kNames.size(); ++i) before[i] = cuda()->calls_of[i];
    call(pass);
    Counts counts;
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (const int64_t more = cuda()->calls_of[i] - before[i]; more > 0) counts[kNames[i]] = more;
    return counts;
  }
  int64_t launches(Pass pass) { return std::ssize(rank().kernels(pass)); }

  static constexpr std::array kPasses = {Pass::kWeights, Pass::kForward, Pass::kBackward};
  moejit_engine* engine_ = nullptr;
  std::vector<std::unique_ptr<GroupRank>> ranks_;
};

// As a host has it that computes with CUDA: the context of the rank's GPU is current.
TEST_F(GroupCalls, AskTheDriverOnceAndLaunch) {
  ASSERT_EQ(rank().device().enter(), true);
  for (const Pass pass : kPasses) call(pass);
  for (const Pass pass : kPasses)
    EXPECT_EQ(calls_of_driver(pass), (Counts{{"cuCtxGetCurrent", 1},
                                             {"cuStreamIsCapturing", 1},
                                             {"cuLaunchKernelEx", launches(pass)}}));
  EXPECT_EQ(launches(Pass::kForward), 5);
  rank().device().leave();
}

TEST_F(GroupCalls, MakeTheirContextCurrentOnceIfItIsNot) {
  for (const Pass pass : kPasses) call(pass);
  for (const Pass pass : kPasses)
    EXPECT_EQ(calls_of_driver(pass), (Counts{{"cuCtxGetCurrent", 1},
                                             {"cuCtxPushCurrent", 1},
                                             {"cuCtxPopCurrent", 1},
                                             {"cuStreamIsCapturing", 1},
                                             {"cuLaunchKernelEx", launches(pass)}}));
}

// Tensor maps do not depend on T here: kernels of the experts see the slots of all ranks.
TEST_F(GroupCalls, EncodeNoTensorMapsForAnotherNumberOfTokens) {
  for (const Pass pass : kPasses) call(pass);
  rank().set_tokens(5);
  for (const Pass pass : kPasses)
    EXPECT_EQ(calls_of_driver(pass).count("cuTensorMapEncodeTiled"), 0);
}

TEST_F(GroupCalls, AreRefusedBehindOneThatWasLaunchedInPart) {
  for (const Pass pass : kPasses) call(pass);
  cuda()->fail_with = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  cuda()->fail_at = cuda()->calls + 6;  // the context thrice, the stream, the first kernel
  EXPECT_EQ(rank().call(Pass::kForward), MOEJIT_ERROR_DRIVER);
  cuda()->fail_at = 0;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    EXPECT_EQ(rank().call(pass), MOEJIT_ERROR_INVALID_STATE);
    EXPECT_NE(std::string_view(moejit_last_error()->message).find("launched in part"),
              std::string_view::npos)
        << moejit_last_error()->message;
  }
  EXPECT_EQ(moejit_group_reset(rank().group()), MOEJIT_OK);
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) call(pass);
}

TEST_F(GroupCalls, AllocateNothing) {
  for (const Pass pass : kPasses) call(pass);
  for (const Pass pass : kPasses) {
    const int64_t before = allocations();
    const moejit_error_code code = rank().call(pass);
    EXPECT_EQ(allocations() - before, 0);
    EXPECT_EQ(code, MOEJIT_OK);
  }
}

}  // namespace
}  // namespace moejit::testing
