// SPDX-License-Identifier: Apache-2.0
// What the kernels of a group send to other ranks, by hand: two ranks with 64 tokens, K = 2 of 8
// experts, H = 256. A token has no expert on the other rank in 4/8 * 3/7 = 3/14 of all draws.
#include "compiler/compiler.h"
#include "tests/unit/planner/group_layers.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

constexpr double kRemote = 11.0 / 14.0;
constexpr std::string_view kTraining = R"("passes": ["forward", "backward"], )";
constexpr std::string_view kRows = R"({"ranks": 2, "combine": "rows"})";

const KernelPlan& kernel(const Plan& plan, std::string_view operation) {
  const auto found = std::ranges::find(plan.kernels, operation, &KernelPlan::operation);
  EXPECT_NE(found, plan.kernels.end()) << operation;
  return found == plan.kernels.end() ? plan.kernels.front() : *found;
}

int64_t sent(const Plan& plan, std::string_view operation, int64_t tokens = 64) {
  return count_work(kernel(plan, operation), {.tokens = tokens}).sent_bytes;
}

bool says(const KernelPlan& kernel, std::string_view text) {
  return std::ranges::any_of(kernel.reasons, [&](const std::string& reason) {
    return reason.find(text) != std::string::npos;
  });
}

// Ids and probabilities, 4 bytes each, have places for all 64 tokens in every call.
TEST(GroupTrafficOf, OfDispatchIsChoicesOnceAndARowForEachRank) {
  const Plan plan = planned(parsed(with(kTraining)));
  EXPECT_EQ(sent(plan, "route_dispatch_permute"), 64 * 2 * 8 + std::lround(64 * 264 * kRemote));
  EXPECT_EQ(sent(plan, "route_dispatch_permute", 14), 64 * 2 * 8 + 14 * 264 * 11 / 14);
  EXPECT_EQ(sent(plan, "dispatch_permute_grad", 14), 14 * 264 * 11 / 14);
}

TEST(GroupTrafficOf, OfCombineHasTheGradientsOfProbabilities) {
  const Plan plan = planned(parsed(with(kTraining)));
  EXPECT_EQ(sent(plan, "combine_rows", 14), 14 * 512 * 11 / 14);
  // Half of the 2 choices of a token are elsewhere, a number of 4 bytes each.
  EXPECT_EQ(sent(plan, "combine_rows_grad", 14), 14 * 512 * 11 / 14 + 14 * 4);
}

TEST(GroupTrafficOf, OfRowsThatGoHomeIsARowForEachChoice) {
  const Plan plan = planned(parsed(with(kTraining, kRows)));
  EXPECT_EQ(sent(plan, "combine_rows", 14), 14 * 512);
  EXPECT_EQ(sent(plan, "combine_rows_grad", 14), 14 * 512 + 14 * 4);
  EXPECT_TRUE(says(kernel(plan, "combine_rows"), "64 SMs send"));
}

// Rows of shared experts stay where they are: their ids and probabilities alone travel.
TEST(GroupTrafficOf, OfSharedExpertsIsTheirChoices) {
  const Plan plan = planned(parsed(with(R"("shared": {"experts": 2}, )" + std::string(kTraining))));
  EXPECT_EQ(sent(plan, "route_dispatch_permute"), 64 * 4 * 8 + std::lround(64 * 264 * kRemote));
  EXPECT_EQ(sent(plan, "combine_rows", 14), 14 * 512 * 11 / 14);
  EXPECT_EQ(sent(plan, "combine_rows_grad", 14), 14 * 512 * 11 / 14 + 14 * 4);
  const Plan rows =
      planned(parsed(with(R"("shared": {"experts": 2}, )" + std::string(kTraining), kRows)));
  EXPECT_EQ(sent(rows, "combine_rows", 14), 14 * 512);
}

TEST(GroupPlanner, TellsHowManySmsAnExchangeTakes) {
  const Plan plan = planned(parsed(with("", R"({"ranks": 2, "sms": 24})")));
  EXPECT_TRUE(says(kernel(plan, "route_dispatch_permute"), "24 SMs are taken"));
  EXPECT_TRUE(says(kernel(plan, "combine_rows"), "12 send first"));
}

TEST(GroupTrafficOf, OfRowsInBf16IsThatOfKernelsApart) {
  const Plan plan = planned(parsed(with(R"("recipe": "fp8_current", )")));
  EXPECT_EQ(sent(plan, "exchange_choices"), 64 * 2 * 8);
  EXPECT_EQ(sent(plan, "dispatch_rows", 14), 14 * 512 * 11 / 14);
  EXPECT_EQ(sent(plan, "await_rows"), 0);
}

// The layer's own count goes another way.
TEST(GroupTrafficOf, OfKernelsIsThatOfTheLayer) {
  for (const int ranks : {2, 4, 8})
    for (const std::string_view combine : {"partial", "rows"}) {
      const Plan plan =
          planned(parsed(with("", R"({"ranks": )" + std::to_string(ranks) + R"(, "combine": ")" +
                                      std::string(combine) + R"("})")));
      const GroupTraffic traffic = group_traffic(*plan.layer);
      EXPECT_NEAR(static_cast<double>(kernel(plan, "route_dispatch_permute").sent_bytes),
                  64 * traffic.dispatch_bytes, 1.0);
      EXPECT_NEAR(static_cast<double>(kernel(plan, "combine_rows").sent_bytes),
                  64 * traffic.combine_bytes, 1.0);
    }
}

// 14300 / 450e3 us are too few to see; 4096 tokens of 7168 columns are not.
TEST(GroupTrafficOf, IsExplainedWithTheTimeOfTheLink) {
  Layer layer = parsed(with(kTraining));
  const Plan two = planned(layer);
  EXPECT_TRUE(says(kernel(two, "combine_rows_grad"),
                   "64 tokens send 26002 bytes to the other rank in the mean, if their experts are "
                   "drawn alike: no less than 0.1 us at 450 GB/s"));
  for (const KernelPlan& one : two.kernels)
    EXPECT_EQ(one.sent_bytes > 0, says(one, "tokens send")) << one.operation;
  const Plan four = planned(parsed(with("", R"({"ranks": 4, "combine": "rows"})")));
  EXPECT_TRUE(says(kernel(four, "combine_rows"),
                   "64 tokens send 16384 bytes to each other rank, 49152 to all 3 in the mean"));
  const std::string text = print_plan(two, false);
  EXPECT_NE(text.find("on the wire a forward call takes no less than 0.1 us, a backward call 0.1"),
            std::string::npos)
      << text;
  EXPECT_NE(plan_to_json(two).find("\"sent_bytes\": 26002"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
