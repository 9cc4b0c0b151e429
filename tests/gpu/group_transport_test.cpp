// SPDX-License-Identifier: Apache-2.0
// Layers whose ranks reach no memory of each other: a transport moves the bytes, here that of the
// simulator. Results are those of one rank with all tokens, and of ranks that do reach it.
#include "moejit_device/params/status_bits.h"
#include "runtime/prepared_plan.h"
#include "runtime/simulator_group.h"
#include "tests/gpu/group_case.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Combine;
using compiler::Gradient;
using compiler::Layer;
using compiler::Plan;
using compiler::Recipe;
using compiler::Transport;
using runtime::Group;

Layer over_transport(Layer layer) {
  layer.expert_parallel.transport = Transport::kNccl;
  return layer;
}
Layer layer_over_transport(int32_t ranks) { return over_transport(group_layer(ranks)); }

std::vector<uint32_t> zeros(int32_t ranks) {
  return std::vector<uint32_t>(static_cast<std::size_t>(ranks));
}

// Runs a layer twice, so that the second call meets what the first has left. Returns the results of
// each rank.
std::vector<runtime::TensorMap> expect_bits_of_one_rank(const Layer& described,
                                                        const std::vector<int64_t>& tokens,
                                                        const SetIds& set_ids = {}) {
  std::string why_not;
  const auto group = GroupCase::open(completed(described), tokens, why_not, 1, set_ids);
  EXPECT_NE(group, nullptr) << why_not;
  if (group == nullptr) return {};
  for (int call = 0; call < 2 && !::testing::Test::HasFailure(); ++call) {
    EXPECT_EQ(group->run(), zeros(described.expert_parallel.ranks));
    group->expect_bits_of_one_rank();
  }
  return group->results();
}

std::vector<runtime::TensorMap> results_of(const Layer& layer, const std::vector<int64_t>& tokens) {
  std::string why_not;
  const auto group = GroupCase::open(completed(layer), tokens, why_not);
  EXPECT_NE(group, nullptr) << why_not;
  if (group == nullptr) return {};
  EXPECT_EQ(group->run(), zeros(layer.expert_parallel.ranks));
  return group->results();
}

class LayersOverTransport : public ::testing::TestWithParam<std::tuple<int32_t, Combine>> {};

TEST_P(LayersOverTransport, GiveTheBitsOfOneRankAndOfPeers) {
  const auto [ranks, combine] = GetParam();
  Layer layer = over_transport(group_layer_of_many(ranks));
  layer.expert_parallel.combine = combine;
  std::vector<int64_t> tokens;  // another T for each rank
  for (int64_t rank = 0; rank < ranks; ++rank) tokens.push_back(12 - (rank * 5) % 12);
  const auto over_transport = expect_bits_of_one_rank(layer, tokens);
  layer.expert_parallel.transport = Transport::kPeer;
  const auto of_peers = results_of(layer, tokens);
  ASSERT_EQ(over_transport.size(), of_peers.size());
  for (std::size_t rank = 0; rank < of_peers.size(); ++rank)
    for (const auto& [name, host] : of_peers[rank])
      EXPECT_TRUE(over_transport[rank].at(name).bytes == host.bytes) << name << " of rank " << rank;
}
INSTANTIATE_TEST_SUITE_P(Ranks, LayersOverTransport,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(Combine::kPartial, Combine::kRows)));

class RecipesOverTransport : public ::testing::TestWithParam<Recipe> {};

TEST_P(RecipesOverTransport, SendBf16Rows) {
  expect_bits_of_one_rank(with_recipe(layer_over_transport(2), GetParam()), {12, 5});
}
INSTANTIATE_TEST_SUITE_P(Recipes, RecipesOverTransport,
                         ::testing::Values(Recipe::kBf16, Recipe::kFp8Flow, Recipe::kFp8Blockwise,
                                           Recipe::kFp8Current, Recipe::kFp8Rowwise,
                                           Recipe::kMxfp8),
                         [](const auto& tested) { return std::string(tested.param.name); });

class SharedOverTransport : public ::testing::TestWithParam<Combine> {};

TEST_P(SharedOverTransport, GiveTheBitsOfOneRank) {
  Layer layer = layer_over_transport(2);
  layer.shared = {.experts = 1, .gate = true};
  layer.expert_parallel.combine = GetParam();
  expect_bits_of_one_rank(layer, {12, 5});
}
INSTANTIATE_TEST_SUITE_P(Combines, SharedOverTransport,
                         ::testing::Values(Combine::kPartial, Combine::kRows),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(TransportEdges, ARankMayHaveNoTokens) {
  expect_bits_of_one_rank(layer_over_transport(2), {0, 9});
  expect_bits_of_one_rank(layer_over_transport(2), {0, 0});
}

TEST(TransportEdges, AllTokensMayGoToOneRankOrNone) {
  expect_bits_of_one_rank(layer_over_transport(2), {12, 11}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 4 + static_cast<int64_t>(i % 4);
  });
  expect_bits_of_one_rank(layer_over_transport(2), {6, 6},
                          [](std::vector<int64_t>& ids) { std::ranges::fill(ids, -1); });
}

TEST(TransportEdges, RowsThatOneExpertMadeTwiceGoHome) {
  Layer layer = layer_over_transport(2);
  layer.expert_parallel.combine = Combine::kRows;
  layer.top_k = 3;
  expect_bits_of_one_rank(layer, {9, 12}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = i % 3 == 0 ? static_cast<int64_t>(i * 5 % 8) : i % 7 == 1 ? -1 : ids[i - 1];
  });
}

TEST(TransportEdges, TakeWideIdsBiasesAndFewerGradients) {
  Layer layer = layer_over_transport(2);
  layer.topk_ids_dtype = compiler::IndexDtype::kI64;
  layer.topk_probs_dtype = compiler::TopkProbsDtype::kBf16;
  layer.biases = true;
  layer.recompute = compiler::Recompute::kMoeExpert;
  expect_bits_of_one_rank(layer, {12, 8});
  layer.gradients = {Gradient::kDx, Gradient::kDw2};
  expect_bits_of_one_rank(layer, {12, 8});
  layer.gradients.clear();
  layer.passes = {compiler::Pass::kForward};
  expect_bits_of_one_rank(layer, {12, 8});
}

// Rank 1 gets all rows, and has memory for some of them.
TEST(TransportStatus, IsThatOfAllRanks) {
  Layer layer = over_transport(group_layer_of_many(4));
  layer.max_permuted_rows = 16;
  std::string why_not;
  const auto group =
      GroupCase::open(completed(layer), {12, 12, 0, 12}, why_not, 3, [](std::vector<int64_t>& ids) {
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 4 + static_cast<int64_t>(i % 4);
      });
  ASSERT_NE(group, nullptr) << why_not;
  EXPECT_EQ(group->run(), std::vector<uint32_t>(4, device::kStatusRowOverflow));
}

TEST(TransportStatus, TellsOfBadIdsAndIsCleared) {
  std::string why_not;
  const auto group = GroupCase::open(completed(layer_over_transport(2)), {4, 3}, why_not, 4,
                                     [](std::vector<int64_t>& ids) { ids.back() = 8; });
  ASSERT_NE(group, nullptr) << why_not;
  EXPECT_EQ(group->run(), std::vector<uint32_t>(2, device::kStatusBadExpertId));
  for (int32_t rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(succeeded(group->session().group(rank).clear_status(nullptr)));
  const auto status = group->session().status();
  ASSERT_TRUE(succeeded(status));
  EXPECT_EQ(*status, zeros(2));
}

TEST(TransportStatus, TellsAllRanksOfOtherTokensInBackward) {
  std::string why_not;
  const auto group = GroupCase::open(completed(layer_over_transport(2)), {3, 7}, why_not);
  ASSERT_NE(group, nullptr) << why_not;
  trial::Trial& session = group->session();
  EXPECT_EQ(group->run(), zeros(2));
  const auto* const saved = find_tensor(session.plan(1), "saved_tokens");
  ASSERT_NE(saved, nullptr);
  const int64_t other = 5;
  ASSERT_TRUE(succeeded(group->devices().device(1).copy_to_device(
      static_cast<std::byte*>(session.memory(1).saved) + saved->saved_offset, &other,
      sizeof(other))));
  EXPECT_TRUE(succeeded(session.call("backward")));
  const auto status = session.status();
  ASSERT_TRUE(succeeded(status));
  EXPECT_EQ(*status, std::vector<uint32_t>(2, device::kStatusOtherTokens));
}

// A rank that calls alone waits for the others in its first step.
TEST(TransportOrder, NamesAStepThatOneRankComesToAlone) {
  std::string why_not;
  const auto group = GroupCase::open(completed(layer_over_transport(2)), {3, 7}, why_not);
  ASSERT_NE(group, nullptr) << why_not;
  EXPECT_TRUE(succeeded(group->session().call_on(0, "forward")));
  const auto waited = group->devices().synchronize();
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::kSimulatorFault);
  EXPECT_NE(waited.error().message.find("rank 0 waits for the others in step 0 of the transport"),
            std::string::npos)
      << waited.error().message;
}

// What waits for a rank that does not call ends, and what it computed means nothing.
TEST(TransportOrder, EndsWhatWaitsIfItIsAborted) {
  std::string why_not;
  const auto group = GroupCase::open(completed(layer_over_transport(2)), {3, 7}, why_not);
  ASSERT_NE(group, nullptr) << why_not;
  EXPECT_TRUE(succeeded(group->session().call_on(0, "forward")));
  group->session().group(0).abort();
  EXPECT_TRUE(succeeded(group->devices().synchronize()));
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto again = group->session().call_on(rank, "forward");
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, ErrorCode::kInvalidState);
    EXPECT_EQ(group->session().group(rank).status().error().code, ErrorCode::kInvalidState);
  }
}

class OpenedTransports : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ranks = runtime::open_simulator_group(2, {.heap_bytes = 1 << 20});
    ASSERT_TRUE(succeeded(ranks));
    ranks_ = std::move(*ranks);
    ends_ = ranks_->open_transport();
  }
  Plan plan(const Layer& layer, int32_t rank) {
    auto planned =
        compiler::plan_layer(completed(layer), ranks_->device(rank).target(), {.rank = rank});
    EXPECT_TRUE(succeeded(planned));
    return planned.value_or(Plan{});
  }
  Result<std::unique_ptr<Group>> open(const Layer& layer, int32_t rank) {
    return Group::open(plan(layer, rank), ranks_->device(rank),
                       std::move(ends_[static_cast<std::size_t>(rank)]));
  }
  template <typename Opened>
  static void expect_refused(const Opened& opened, ErrorCode code, std::string_view words) {
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, code);
    EXPECT_NE((opened.error().message + " " + opened.error().hint).find(words), std::string::npos)
        << opened.error().message << " (" << opened.error().hint << ")";
  }

  std::unique_ptr<runtime::SimulatorGroup> ranks_;
  std::vector<std::unique_ptr<runtime::Transport>> ends_;
};

TEST_F(OpenedTransports, ComparePlans) {
  const auto first = open(layer_over_transport(2), 0);
  ASSERT_TRUE(succeeded(first));
  EXPECT_EQ((*first)->ranks(), 2);
  Layer other = layer_over_transport(2);
  other.hidden = 160;
  expect_refused(open(other, 1), ErrorCode::kTensorMismatch,
                 "ranks 1 and 0 of a group differ in hidden: 160 and 144");
}

TEST_F(OpenedTransports, AreForPlansThatReachNoPeer) {
  expect_refused(open(group_layer(2), 0), ErrorCode::kUnsupported,
                 "has the transport peer, and its group was to be opened with a transport");
  const Plan planned = plan(layer_over_transport(2), 0);
  std::vector<runtime::GroupMember> members;
  for (int32_t rank = 0; rank < 2; ++rank)
    members.push_back({.base = ranks_->heap(rank), .bytes = ranks_->heap_bytes()});
  expect_refused(Group::adopt(planned, ranks_->device(0), members), ErrorCode::kUnsupported,
                 "open the group with a transport");
  expect_refused(Group::open(planned, ranks_->device(0), {.path = "/tmp/nowhere"}),
                 ErrorCode::kUnsupported, "open the group with a transport");
}

TEST_F(OpenedTransports, AreNotReopened) {
  const auto group = open(layer_over_transport(2), 0);
  ASSERT_TRUE(succeeded(group));
  expect_refused((*group)->reopen({.path = "/tmp/nowhere"}), ErrorCode::kInvalidState,
                 "open another group on all ranks");
}

TEST_F(OpenedTransports, AreThoseOfThePlansRank) {
  std::swap(ends_[0], ends_[1]);
  expect_refused(open(layer_over_transport(2), 0), ErrorCode::kInvalidValue,
                 "the transport is that of rank 1 of 2, wanted rank 0 of 2");
}

}  // namespace
}  // namespace moejit::testing
