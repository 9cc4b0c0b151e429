// SPDX-License-Identifier: Apache-2.0
// Where a plan places what the ranks of a group reach.
#include "tests/unit/planner/group_layers.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::compiler {
namespace {

TEST(GroupPlanner, CountsTheGroupsMemory) {
  const Plan plan = planned(parsed(with("")));
  const auto bytes_of = [&](std::string_view name) {
    const auto found = std::ranges::find(plan.group->memory.tensors, name, &PlacedTensor::name);
    return found == plan.group->memory.tensors.end() ? -1 : found->bytes;
  };
  EXPECT_EQ(bytes_of("epoch"), 4);
  EXPECT_EQ(bytes_of("group_status"), 4);
  EXPECT_EQ(bytes_of("choice_ids"), 128 * 2 * 4);
  EXPECT_EQ(bytes_of("choice_probs"), 128 * 2 * 4);
  EXPECT_EQ(bytes_of("choice_flags"), 2 * 1 * 4);
  EXPECT_EQ(bytes_of("slots"), 128 * 256);
  EXPECT_EQ(bytes_of("slot_scales"), 128 * 2 * 4);
  EXPECT_EQ(bytes_of("row_flags"), 2 * 64 * 4);
  EXPECT_EQ(bytes_of("tickets"), 518 * 4);
  EXPECT_EQ(bytes_of("route_flags"), 2 * 2 * 4);
  EXPECT_EQ(bytes_of("results"), 128 * 256 * 2);
  EXPECT_EQ(bytes_of("result_flags"), 2 * 65 * 4);
  EXPECT_EQ(bytes_of("dprobs_home"), -1);
  // Each at a multiple of 256.
  EXPECT_EQ(plan.group->memory.bytes,
            256 + 256 + 1024 + 1024 + 256 + 256 + 32768 + 1024 + 512 + 2304 + 65536 + 768);
  for (std::size_t i = 0; i < plan.group->memory.tensors.size(); ++i)
    EXPECT_EQ(plan.group->memory.tensors[i].offset % 256, 0);
}

// A rank reaches the tensors of all ranks, each at the same offset in the memory of its rank.
TEST(GroupPlanner, TellsWhereTensorsOfAGroupAre) {
  const Plan plan = planned(parsed(with("")), 1);
  const auto place_of = [&](std::string_view tensor) {
    const TensorPlan* const found = find_tensor(plan, tensor);
    return found == nullptr ? std::pair(int32_t{-2}, int64_t{-2})
                            : std::pair(found->rank, found->group_offset);
  };
  const auto offset_of = [&](std::string_view name) {
    return std::ranges::find(plan.group->memory.tensors, name, &PlacedTensor::name)->offset;
  };
  for (const int32_t rank : {0, 1}) {
    EXPECT_EQ(place_of(fmt::format("slots_{}", rank)), std::pair(rank, offset_of("slots")));
    EXPECT_EQ(place_of(fmt::format("results_{}", rank)), std::pair(rank, offset_of("results")));
  }
  EXPECT_EQ(place_of("epoch"), std::pair(1, offset_of("epoch")));
  EXPECT_EQ(place_of("group_status_1"), std::pair(1, offset_of("group_status")));
  EXPECT_EQ(place_of("route_flags_1"), std::pair(1, offset_of("route_flags")));
  EXPECT_EQ(place_of("tickets_0"), std::pair(int32_t{-2}, int64_t{-2}));
  for (const TensorPlan& tensor : plan.tensors)
    EXPECT_EQ(tensor.rank >= 0, tensor.role == TensorRole::kGroup) << tensor.name;
}

// Modules of one model take the memory once, whatever kernels their recipes have.
TEST(GroupPlanner, GivesRecipesTheSameMemory) {
  std::vector<GroupMemory> memories;
  for (const char* const recipe : {"bf16", "fp8_rowwise", "fp8_flow"})
    for (const char* const passes : {R"(["forward"])", R"(["forward", "backward"])"})
      memories.push_back(
          planned(
              parsed(with(fmt::format(
                  R"("recipe": "{}", "dispatch": "none", "splits_alignment": 64, "passes": {}, )",
                  recipe, passes))))
              .group->memory);
  for (std::size_t i = 0; i < memories.size(); ++i) {
    EXPECT_TRUE(contains(memories[1], memories[i])) << i;
    EXPECT_TRUE(contains(memories[i | 1], memories[0])) << i;
  }
}

// Layers whose exchange leaves SMs to others share memory with those that do not.
TEST(GroupPlanner, GivesExchangesOfFewSmsTheSameMemory) {
  const Plan all = planned(parsed(with(""))),
             few = planned(parsed(with("", R"({"ranks": 2, "sms": 3})")));
  EXPECT_TRUE(contains(all.group->memory, few.group->memory));
  EXPECT_TRUE(contains(few.group->memory, all.group->memory));
}

}  // namespace
}  // namespace moejit::compiler
