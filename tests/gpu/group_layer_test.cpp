// SPDX-License-Identifier: Apache-2.0
// Whole layers on groups of ranks, forward and backward, equal bit for bit to one rank that has all
// tokens, as far as partial sums allow.
#include "moejit_device/params/status_bits.h"
#include "tests/gpu/group_case.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace moejit::testing {
namespace {

using compiler::Gradient;
using compiler::Layer;
using compiler::Recipe;

std::vector<uint32_t> zeros(int32_t ranks) {
  return std::vector<uint32_t>(static_cast<std::size_t>(ranks));
}

// Runs a layer twice, so that the second call meets what the first has left in the group's memory.
void expect_bits_of_one_rank(const Layer& described, const std::vector<int64_t>& tokens,
                             const SetIds& set_ids = {}, uint64_t seed = 1) {
  const Layer layer = completed(described);
  std::string why_not;
  const auto group = GroupCase::open(layer, tokens, why_not, seed, set_ids);
  if (group == nullptr) GTEST_SKIP() << why_not;
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(group->run(), zeros(layer.expert_parallel.ranks));
    group->expect_bits_of_one_rank();
    if (::testing::Test::HasFailure()) return;
  }
}

class GroupLayers : public ::testing::TestWithParam<int32_t> {};

TEST_P(GroupLayers, GiveTheBitsOfOneRank) {
  std::vector<int64_t> tokens;  // another T for each rank
  for (int64_t rank = 0; rank < GetParam(); ++rank) tokens.push_back(12 - (rank * 5) % 12);
  expect_bits_of_one_rank(group_layer_of_many(GetParam()), tokens);
}
INSTANTIATE_TEST_SUITE_P(Ranks, GroupLayers, ::testing::Values(1, 2, 4, 8));

class GroupRecipes : public ::testing::TestWithParam<Recipe> {};

TEST_P(GroupRecipes, SendBf16Rows) {
  expect_bits_of_one_rank(with_recipe(group_layer(2), GetParam()), {12, 5});
}
INSTANTIATE_TEST_SUITE_P(Recipes, GroupRecipes,
                         ::testing::Values(Recipe::kBf16, Recipe::kFp8Flow, Recipe::kFp8Blockwise,
                                           Recipe::kFp8Current, Recipe::kFp8Rowwise,
                                           Recipe::kMxfp8),
                         [](const auto& tested) { return std::string(tested.param.name); });

class GroupChoices : public ::testing::TestWithParam<int32_t> {};

TEST_P(GroupChoices, OfAnyNumberComeHome) {
  Layer layer = group_layer(2);
  layer.top_k = GetParam();
  expect_bits_of_one_rank(layer, {7, 12});
}
INSTANTIATE_TEST_SUITE_P(TopK, GroupChoices, ::testing::Values(1, 2, 6, 8));

// With "rows" y and dx too have the bits of one rank.
class GroupsThatSendRows : public ::testing::TestWithParam<int32_t> {};

TEST_P(GroupsThatSendRows, GiveAllBitsOfOneRank) {
  Layer layer = group_layer_of_many(GetParam());
  layer.expert_parallel.combine = compiler::Combine::kRows;
  std::vector<int64_t> tokens;
  for (int64_t rank = 0; rank < GetParam(); ++rank) tokens.push_back(12 - (rank * 5) % 12);
  expect_bits_of_one_rank(layer, tokens);
}
INSTANTIATE_TEST_SUITE_P(Ranks, GroupsThatSendRows, ::testing::Values(1, 2, 4, 8));

TEST(GroupEdges, RowsThatOneExpertMadeTwiceGoHome) {
  Layer layer = group_layer(2);
  layer.expert_parallel.combine = compiler::Combine::kRows;
  layer.top_k = 3;
  expect_bits_of_one_rank(layer, {9, 12}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = i % 3 == 0 ? static_cast<int64_t>(i * 5 % 8) : i % 7 == 1 ? -1 : ids[i - 1];
  });
}

// Every rank has the shared experts, and tokens stay there: one of them may even be without others.
class GroupsWithSharedExperts : public ::testing::TestWithParam<compiler::Combine> {};

TEST_P(GroupsWithSharedExperts, GiveTheBitsOfOneRank) {
  Layer layer = group_layer(2);
  layer.shared = {.experts = 2, .gate = true};
  layer.expert_parallel.combine = GetParam();
  expect_bits_of_one_rank(layer, {12, 5}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = i / 2 % 3 == 0 ? -1 : static_cast<int64_t>((i * 5) % 8);
  });
}

TEST_P(GroupsWithSharedExperts, AddGradientsOfTheRanksTokens) {
  Layer layer = group_layer(2);
  layer.shared = {.experts = 1};
  layer.recipe = Recipe::kBf16;
  layer.dispatch = compiler::Dispatch::kNone;
  layer.expert_parallel.combine = GetParam();
  std::string why_not;
  const auto group = GroupCase::open(completed(layer), {12, 7}, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  EXPECT_EQ(group->run(), zeros(2));
  group->expect_bits_of_one_rank();
  const auto ranks = group->results();
  for (const std::string_view name : {"dw1", "dw2"}) {
    const auto wanted = runtime::elements<float>(group->one_rank().find(name)->second);
    const auto first = runtime::elements<float>(ranks[0].find(name)->second);
    const auto second = runtime::elements<float>(ranks[1].find(name)->second);
    const std::size_t count = wanted.size() / 9;  // of one of 8 experts and the shared one
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = first[4 * count + i] + second[4 * count + i];
      // Sums of 19 products in fp32, in another order.
      const float size = std::fabs(first[4 * count + i]) + std::fabs(second[4 * count + i]);
      ASSERT_NEAR(sum, wanted[8 * count + i], 20 * 0x1p-23F * (size + 1.0F)) << name << ' ' << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Combines, GroupsWithSharedExperts,
                         ::testing::Values(compiler::Combine::kPartial, compiler::Combine::kRows),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(GroupEdges, ARankMayHaveNoTokens) { expect_bits_of_one_rank(group_layer(2), {0, 9}); }

TEST(GroupEdges, NoRankNeedsTokens) { expect_bits_of_one_rank(group_layer(2), {0, 0}); }

TEST(GroupEdges, AllTokensMayGoToOneRank) {
  expect_bits_of_one_rank(group_layer(2), {12, 12}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 4 + static_cast<int64_t>(i % 4);
  });
}

TEST(GroupEdges, AllTokensMayGoToOneExpert) {
  Layer layer = group_layer(2);
  layer.top_k = 1;
  expect_bits_of_one_rank(layer, {12, 11},
                          [](std::vector<int64_t>& ids) { std::ranges::fill(ids, 5); });
}

TEST(GroupEdges, TokensMayHaveNoExperts) {
  expect_bits_of_one_rank(group_layer(2), {6, 6},
                          [](std::vector<int64_t>& ids) { std::ranges::fill(ids, -1); });
}

TEST(GroupEdges, SomeChoicesMayBeNone) {
  expect_bits_of_one_rank(group_layer_of_many(4), {6, 3, 12, 1}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = i % 3 == 0 ? -1 : static_cast<int64_t>((i * 5) % 16);
  });
}

TEST(GroupEdges, NobodyNeedsToWantAnExpert) {
  expect_bits_of_one_rank(group_layer(2), {9, 12}, [](std::vector<int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i % 2 == 0 ? 0 : 7;
  });
}

TEST(GroupEdges, TakeWideIdsAndBf16Probabilities) {
  Layer layer = group_layer(2);
  layer.topk_ids_dtype = compiler::IndexDtype::kI64;
  layer.topk_probs_dtype = compiler::TopkProbsDtype::kBf16;
  expect_bits_of_one_rank(layer, {12, 8});
}

TEST(GroupEdges, MayLeaveGradientsOut) {
  Layer layer = group_layer(2);
  layer.gradients = {Gradient::kDx, Gradient::kDw2};
  expect_bits_of_one_rank(layer, {12, 8});
}

TEST(GroupEdges, TakeBiasesAndRecompute) {
  Layer layer = group_layer(2);
  layer.biases = true;
  layer.recompute = compiler::Recompute::kMoeExpert;
  expect_bits_of_one_rank(layer, {12, 8});
}

TEST(GroupEdges, MayRunForwardAlone) {
  Layer layer = group_layer_of_many(4);
  layer.passes = {compiler::Pass::kForward};
  expect_bits_of_one_rank(layer, {12, 8, 1, 0});
}

// Rank 1 gets all rows, and has memory for some of them: what it drops is missing everywhere.
TEST(GroupStatus, IsThatOfAllRanks) {
  Layer layer = group_layer_of_many(4);
  layer.max_permuted_rows = 16;
  std::string why_not;
  const auto group =
      GroupCase::open(completed(layer), {12, 12, 0, 12}, why_not, 3, [](std::vector<int64_t>& ids) {
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 4 + static_cast<int64_t>(i % 4);
      });
  if (group == nullptr) GTEST_SKIP() << why_not;
  EXPECT_EQ(group->run(), std::vector<uint32_t>(4, device::kStatusRowOverflow));
  EXPECT_EQ(group->run(), std::vector<uint32_t>(4, device::kStatusRowOverflow));
}

TEST(GroupStatus, TellsOfBadIdsAndIsCleared) {
  std::string why_not;
  const auto group = GroupCase::open(completed(group_layer(2)), {4, 3}, why_not, 4,
                                     [](std::vector<int64_t>& ids) { ids.back() = 8; });
  if (group == nullptr) GTEST_SKIP() << why_not;
  EXPECT_EQ(group->run(), std::vector<uint32_t>(2, device::kStatusBadExpertId));
  for (int32_t rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(succeeded(group->session().group(rank).clear_status(nullptr)));
  const auto status = group->session().status();
  ASSERT_TRUE(succeeded(status));
  EXPECT_EQ(*status, zeros(2));
}

}  // namespace
}  // namespace moejit::testing
