// SPDX-License-Identifier: Apache-2.0
// The order in which calls of a plan can be made.
#include "compiler/call_order.h"

#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "tests/unit/planner/group_layers.h"
#include "tests/unit/planner/training_layers.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <map>

namespace moejit::compiler {
namespace {

std::string order_to(const Plan& plan, std::string_view name) {
  Names names;
  const std::vector<std::size_t> calls = calls_up_to(plan, name).value();
  for (const std::size_t call : calls) names.push_back(plan.calls[call].name);
  return fmt::format("{}", fmt::join(names, " "));
}

Layer layer_of_every_call() {
  Layer layer = training_layer();
  layer.dispatch = Dispatch::kFp8;
  layer.dispatch_calls = layer.backward_halves = true;
  return layer;
}

std::size_t slot_of(const Plan& plan, std::string_view tensor) {
  return static_cast<std::size_t>(find_tensor(plan, tensor) - plan.tensors.data());
}

TEST(CallOrder, PutsWritersOfBlocksAndTensorsBeforeTheirReaders) {
  const Plan plan = plan_of(layer_of_every_call());
  const std::map<std::string, std::string> wanted = {
      {"update_weights", "update_weights"},
      {"update_forward_scales", "update_forward_scales"},  // which does nothing here
      {"update_backward_scales", "update_backward_scales"},
      {"forward", "update_weights forward"},
      {"update_weights+forward", "update_weights+forward"},
      {"quantize", "quantize"},
      {"experts", "update_weights quantize experts"},
      {"backward", "update_weights forward backward"},
      {"backward+add", "update_weights forward backward+add"},
      {"backward_data", "update_weights forward backward_data"},
      {"backward_weights", "update_weights forward backward_data backward_weights"},
      {"backward_weights+add", "update_weights forward backward_data backward_weights+add"},
      {"quantize_grad", "quantize_grad"},
      {"experts_grad", "update_weights forward quantize_grad experts_grad"},
      {"experts_grad+add", "update_weights forward quantize_grad experts_grad+add"}};
  ASSERT_EQ(wanted.size(), plan.calls.size());
  for (const CallPlan& call : plan.calls)
    EXPECT_EQ(order_to(plan, call.name), wanted.at(call.name));
}

TEST(CallOrder, TakesForwardAndNoShorterCallThatFillsTheSavedBlock) {
  Plan plan = plan_of(training_layer());
  CallPlan part = plan.calls[find_call(plan, "forward").value()];
  part.name = "forward_without_unpermute";
  part.steps.pop_back();
  plan.calls.push_back(part);
  EXPECT_EQ(order_to(plan, "backward"), "update_weights forward backward");
  EXPECT_EQ(order_to(plan, part.name), "update_weights forward_without_unpermute");
}

TEST(CallOrder, PutsThePassesBeforeTheScalesOfTheNextStep) {
  Layer layer = training_layer();
  layer.recipe = Recipe::kFp8Delayed;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(order_to(plan, "forward"), "update_weights forward");
  EXPECT_EQ(order_to(plan, "update_forward_scales"),
            "update_weights forward update_forward_scales");
  EXPECT_EQ(order_to(plan, "update_backward_scales"),
            "update_weights forward backward update_backward_scales");
}

TEST(CallOrder, OfAGroupAndOfAnOperation) {
  const Plan group =
      planned(parsed(with("\"passes\": [\"forward\", \"backward\"], ",
                          R"({"ranks": 2, "combine": "partial", "transport": "nccl"})")));
  EXPECT_EQ(order_to(group, "backward"), "update_weights forward backward");
  const Plan operation =
      plan_operation({"quantize", {{"max_tokens", 64}, {"columns", 256}}}, {}).value();
  EXPECT_EQ(order_to(operation, "run"), "run");
}

// Nothing but a row makes a call.
TEST(CallOrder, FollowsFromTheRowOfACallThatNobodyKnows) {
  Plan plan = plan_of(training_layer());
  plan.calls.push_back({.name = "look", .steps = {}, .tensors = {{.slot = slot_of(plan, "w2_q")}}});
  EXPECT_EQ(order_to(plan, "look"), "update_weights look");
  plan.calls.back().saved = BlockUse::kRead;
  EXPECT_EQ(order_to(plan, "look"), "update_weights forward look");
  plan.calls.back().deferred = BlockUse::kRead;
  EXPECT_EQ(order_to(plan, "look"), "update_weights forward backward look");
}

TEST(CallOrder, EndsWhereTwoCallsNeedEachOther) {
  Plan plan = plan_of(training_layer());
  const std::size_t one = slot_of(plan, "w1_q"), other = slot_of(plan, "w2_q");
  plan.calls = {{.name = "a",
                 .steps = {},
                 .tensors = {{.slot = one}, {.slot = other, .access = Access::kWrite}}},
                {.name = "b",
                 .steps = {},
                 .tensors = {{.slot = one, .access = Access::kWrite}, {.slot = other}}}};
  EXPECT_EQ(order_to(plan, "a"), "b a");
  EXPECT_EQ(order_to(plan, "b"), "a b");
}

TEST(CallOrder, RefusesCallsThatThePlanDoesNotHave) {
  const auto order = calls_up_to(plan_of(dsv3_like_layer()), "backward");
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().message, "the layer dsv3-like has no backward pass");
}

TEST(CallOrder, KnowsWhatACallWrites) {
  const Plan plan = plan_of(training_layer());
  const CallPlan& backward = plan.calls[find_call(plan, "backward").value()];
  for (const std::string_view written : {"dx", "dw1", "dact", "dprobs_blocks"})
    EXPECT_TRUE(writes(plan, backward, written)) << written;
  for (const std::string_view other : {"y", "w1_q", "h1"})
    EXPECT_FALSE(writes(plan, backward, other)) << other;
  const Plan group =
      planned(parsed(with("", R"({"ranks": 2, "combine": "partial", "transport": "nccl"})")));
  const std::string& arrived = group.collectives.front().moves.front().destination;
  EXPECT_TRUE(writes(group, group.calls[find_call(group, "forward").value()], arrived)) << arrived;
}

}  // namespace
}  // namespace moejit::compiler
