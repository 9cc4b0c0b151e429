// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"

#include "compiler/compiler.h"
#include "tests/unit/planner/group_layers.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

TEST(ExpertParallel, IsReadAndWritten) {
  const Layer layer = parsed(with(""));
  EXPECT_EQ(layer.expert_parallel, (ExpertParallel{.ranks = 2}));
  EXPECT_EQ(layer.local_experts, 4);
  EXPECT_EQ(layer.dispatch, Dispatch::kFp8);
  EXPECT_EQ(layer.max_permuted_rows, 256);  // 2 * 64 tokens of 2 choices
  // On 4 experts, whole groups of 128: 256 + 4 * 127 = 764.
  EXPECT_EQ(parsed(with(R"("splits_alignment": 128, )")).max_permuted_rows, 640);
  EXPECT_EQ(parsed(to_json(layer)), layer);
  EXPECT_EQ(parsed(with("", R"({"ranks": 2})")), layer);
  const Layer of_rows = parsed(with("", R"({"ranks": 2, "combine": "rows"})"));
  EXPECT_EQ(of_rows.expert_parallel.combine, Combine::kRows);
  EXPECT_EQ(parsed(to_json(of_rows)), of_rows);
  EXPECT_EQ(parsed(with(R"("local_experts": 4, )")), layer);
  // The usual transport is not written, so that identities are those of earlier versions.
  EXPECT_EQ(parsed(with("", R"({"ranks": 2, "transport": "peer"})")), layer);
  EXPECT_EQ(to_json(layer).find("transport"), std::string::npos);
  const Layer of_nccl = parsed(with("", R"({"ranks": 2, "transport": "nccl"})"));
  EXPECT_EQ(of_nccl.expert_parallel.transport, Transport::kNccl);
  EXPECT_EQ(parsed(to_json(of_nccl)), of_nccl);
  EXPECT_EQ(to_json(layer).find("sms"), std::string::npos);
  const Layer of_few = parsed(with("", R"({"ranks": 2, "sms": 24})"));
  EXPECT_EQ(of_few.expert_parallel.sms, 24);
  EXPECT_EQ(parsed(to_json(of_few)), of_few);
}

TEST(ExpertParallel, LeavesOtherDescriptionsAlone) {
  Layer layer = parsed(with(""));
  layer.expert_parallel = {};
  EXPECT_EQ(to_json(layer).find("expert_parallel"), std::string::npos);
  EXPECT_FALSE(is_of_group(layer));
}

struct Refusal {
  std::string text;
  ErrorCode code;
  std::string words;  // of the message or the hint
};

class RefusedGroups : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedGroups, AreToldWhy) {
  const Result<Layer> layer = parse_layer(GetParam().text, "layer.json");
  ASSERT_FALSE(layer);
  EXPECT_EQ(layer.error().code, GetParam().code) << layer.error().message;
  EXPECT_NE((layer.error().message + " " + layer.error().hint).find(GetParam().words),
            std::string::npos)
      << layer.error().message << " (" << layer.error().hint << ")";
}

INSTANTIATE_TEST_SUITE_P(
    Descriptions, RefusedGroups,
    ::testing::Values(
        Refusal{with("", "2"), ErrorCode::kWrongType, "$.expert_parallel"},
        Refusal{with("", "{}"), ErrorCode::kMissingKey, "ranks"},
        Refusal{with("", R"({"rank": 2})"), ErrorCode::kUnknownKey, "ranks"},
        Refusal{with("", R"({"ranks": "2"})"), ErrorCode::kWrongType, "$.expert_parallel.ranks"},
        Refusal{with("", R"({"ranks": 0})"), ErrorCode::kInvalidValue, "wanted 1 to 8"},
        Refusal{with("", R"({"ranks": 16})"), ErrorCode::kInvalidValue, "wanted 1 to 8"},
        Refusal{with("", R"({"ranks": 3})"), ErrorCode::kInvalidValue,
                "got 3 with 8 experts, wanted a divisor of the experts"},
        Refusal{with("", R"({"ranks": 2, "combine": "sum"})"), ErrorCode::kInvalidValue, "partial"},
        Refusal{with("", R"({"ranks": 2, "sms": 0})"), ErrorCode::kInvalidValue, "wanted 1 to 256"},
        Refusal{with("", R"({"ranks": 2, "sms": 24, "transport": "nccl"})"),
                ErrorCode::kInvalidValue, "NCCL_MAX_CTAS"},
        Refusal{with("", R"({"ranks": 2, "transport": "mpi"})"), ErrorCode::kInvalidValue,
                "$.expert_parallel.transport"},
        Refusal{with("", R"({"ranks": 2, "transport": 1})"), ErrorCode::kWrongType,
                "$.expert_parallel.transport"},
        Refusal{with(R"("local_experts": 8, )"), ErrorCode::kInvalidValue,
                "got 8 with 8 experts on 2 ranks, wanted 4"},
        Refusal{with(R"("dispatch_calls": true, )"), ErrorCode::kUnsupported,
                "the ranks of a group dispatch rows themselves"},
        Refusal{with(R"("passes": ["forward", "backward"], "backward_halves": true, )"),
                ErrorCode::kUnsupported, "$.backward_halves"},
        Refusal{with(R"("foreign_experts": "ignore", )"), ErrorCode::kInvalidValue,
                "a group has all experts"},
        Refusal{with(R"("passes": ["forward", "backward"], "gradients": ["dw1"], )"),
                ErrorCode::kUnsupported, "got no dx"},
        Refusal{R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128,
                    "max_tokens": 16385, "expert_parallel": {"ranks": 2}})",
                ErrorCode::kUnsupported, "wanted at most 16384"},
        Refusal{R"({"experts": 64, "top_k": 33, "hidden": 256, "intermediate": 128,
                    "max_tokens": 64, "expert_parallel": {"ranks": 2}})",
                ErrorCode::kUnsupported, "wanted at most 32"}));

TEST(GroupPlanner, RefusesWhatIsNoGroup) {
  Layer layer = parsed(with(""));
  EXPECT_TRUE(check_is_of_group(layer));
  layer.expert_parallel = {};
  const auto refused = check_is_of_group(layer);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().hint.find("expert_parallel"), std::string::npos);
  EXPECT_FALSE(plan_layer(layer, {})->group);
}

TEST(GroupPlanner, RefusesSharedScalesOfDispatchedRows) {
  const auto plan = plan_layer(parsed(with(R"("scale_sharing_k": 2, )")), {});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("got scale_sharing_k 2"), std::string::npos);
}

TEST(GroupPlanner, RefusesOtherRanks) {
  const auto plan = plan_layer(parsed(with("")), {}, {.rank = 2});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("got rank 2, wanted 0 to 1"), std::string::npos);
}

TEST(GroupPlanner, TellsWhatNeedsAGroup) {
  const auto refused = check_is_of_one_rank(parsed(with("")));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().hint.find("moejit run --ranks"), std::string::npos);
  EXPECT_TRUE(check_is_of_one_rank(layer_of_one_rank(parsed(with("")))));
}

std::vector<std::string> operations_of(const Plan& plan, std::string_view phase) {
  std::vector<std::string> names;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.phase == phase && kernel.gradient_mode.empty()) names.push_back(kernel.operation);
  return names;
}

TEST(GroupPlanner, JoinsDispatchWithPermuteAndCombineWithUnpermute) {
  const Plan plan = planned(parsed(with(R"("passes": ["forward", "backward"], )")));
  const auto forward = operations_of(plan, "forward");
  ASSERT_GE(forward.size(), 3U);
  EXPECT_EQ(forward.front(), "route_dispatch_permute");
  EXPECT_EQ(std::ranges::count(forward, "route"), 0);
  EXPECT_EQ(forward.back(), "combine_rows");
  const auto backward = operations_of(plan, "backward");
  EXPECT_EQ(backward.front(), "dispatch_permute_grad");
  EXPECT_EQ(std::ranges::count(backward, "await_rows_grad"), 0);
  EXPECT_EQ(std::vector(backward.end() - 2, backward.end()),
            (std::vector<std::string>{"unpermute_dprobs", "combine_rows_grad"}));
  for (const auto* const names : {&forward, &backward})
    for (const std::string& name : *names) {
      EXPECT_EQ(name.find("permute_pad"), std::string::npos) << name;
      EXPECT_NE(name, "quantize");
    }
  // Rows that peers overwrite are kept for the backward call.
  const TensorPlan* const kept = find_tensor(plan, "x_q");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->role, TensorRole::kSaved);
  EXPECT_EQ(kept->shape.front(), (Dim{"S", 128}));
}

// A rank that calls backward with another T would wait for rows that never come. What compares is
// the first kernel of the call that knows T of the rank.
TEST(GroupPlanner, ComparesTokensBeforeBackwardSends) {
  for (const std::string_view recipe : {"fp8_flow", "fp8_current"}) {
    const Plan plan = planned(parsed(with(fmt::format(
        R"("recipe": "{}", "dispatch": "none", "passes": ["forward", "backward"], )", recipe))));
    const auto sends = std::ranges::find_if(plan.kernels, [](const KernelPlan& kernel) {
      return kernel.phase == "backward" && kernel.operation.starts_with("dispatch");
    });
    ASSERT_NE(sends, plan.kernels.end()) << recipe;
    EXPECT_EQ(std::ranges::count(sends->arguments, "saved_tokens", &KernelArgument::role), 1)
        << recipe;
  }
}

// Histograms of the route are in shared memory, four CTAs of an SM: many experts have kernels of
// their own.
TEST(GroupPlanner, RoutesManyExpertsApart) {
  Layer layer = parsed(with(""));
  layer.local_experts = 512;  // of 20 KiB of histograms
  layer.experts = 2 * layer.local_experts;
  EXPECT_EQ(operations_of(planned(layer), "forward").front(), "route_dispatch_permute");
  layer.local_experts = 513;
  layer.experts = 2 * layer.local_experts;
  const Plan plan = planned(layer);
  const auto forward = operations_of(plan, "forward");
  ASSERT_GE(forward.size(), 3U);
  EXPECT_EQ(std::vector(forward.begin(), forward.begin() + 3),
            (std::vector<std::string>{"exchange_choices", "route", "dispatch_permute"}));
}

// The experts' kernels see all slots, whatever T is.
TEST(GroupPlanner, GivesExpertsAllSlots) {
  const Plan plan = planned(parsed(with("")));
  const auto kernel_of = [&](std::string_view name) {
    return *std::ranges::find(plan.kernels, name, &KernelPlan::operation);
  };
  const KernelPlan fc1 = kernel_of("gemm_fc2"), dispatch = kernel_of("route_dispatch_permute");
  EXPECT_TRUE(fc1.has_slots);
  EXPECT_EQ(fc1.bounds.max_tokens, 128);
  EXPECT_FALSE(dispatch.has_slots);
  EXPECT_EQ(dispatch.bounds.max_tokens, 64);
  EXPECT_EQ(call_dims(plan.bounds, 1).rows, plan.layer->max_permuted_rows);
  EXPECT_EQ(find_tensor(plan, "y")->shape.front(), (Dim{"T", 64}));
}

TEST(GroupPlanner, LetsExpertsPermuteRowsThatTheyCast) {
  const Layer layer = parsed(
      with(R"("recipe": "fp8_rowwise", "dispatch": "none", "passes": ["forward", "backward"], )"));
  const Plan plan = planned(layer);
  const auto forward = operations_of(plan, "forward");
  EXPECT_NE(std::ranges::find(forward, "dispatch_rows"), forward.end());
  EXPECT_NE(std::ranges::find(forward, "keep_x"), forward.end());
  EXPECT_EQ(find_tensor(plan, "received_x")->role, TensorRole::kSaved);
}

// A group of one rank has nobody to exchange with.
TEST(GroupPlanner, ExchangesNothingWithOneRank) {
  const Plan plan = planned(parsed(with("", R"({"ranks": 1})")));
  for (const KernelPlan& kernel : plan.kernels)
    EXPECT_EQ(kernel.operation.find("dispatch"), std::string::npos);
  ASSERT_EQ(plan.group->memory.tensors.size(), 1U);
  EXPECT_EQ(plan.group->memory.tensors.front().name, "group_status");
}

// By hand: 64 tokens of a rank are chunks of one token, S = 128 slots.
TEST(GroupPlanner, GivesAllRanksTheSameMemoryAndIdentity) {
  const Layer layer = parsed(with(R"("passes": ["forward", "backward"], )"));
  const Plan first = planned(layer), second = planned(layer, 1);
  EXPECT_EQ(first.group->memory, second.group->memory);
  EXPECT_EQ(group_identity(first), group_identity(second));
  EXPECT_EQ(first.tensors.size(), second.tensors.size());
}

// Two ranks, 8 experts, K = 2: no expert elsewhere in 4/8 * 3/7 of all draws.
TEST(GroupPlanner, CountsBytesOnTheWire) {
  const GroupTraffic traffic = group_traffic(parsed(with("")));
  EXPECT_EQ(traffic.row_bytes, 256 + 2 * 4);
  EXPECT_EQ(traffic.result_bytes, 512);
  EXPECT_EQ(traffic.choice_bytes, 16);
  EXPECT_DOUBLE_EQ(traffic.remote_ranks, 1.0 - 3.0 / 14.0);
  EXPECT_DOUBLE_EQ(traffic.dispatch_bytes, 16 + 264 * 11.0 / 14.0);
  EXPECT_DOUBLE_EQ(traffic.combine_bytes, 512 * 11.0 / 14.0);
  EXPECT_DOUBLE_EQ(traffic.combine_floor_us, 64 * traffic.combine_bytes / 450e3);
}

// With "rows" each of the K rows goes home, half of them from the other rank, and has a place
// there.
TEST(GroupPlanner, CountsRowsOnTheirWayHome) {
  const Plan plan = planned(parsed(with("", R"({"ranks": 2, "combine": "rows"})")));
  EXPECT_DOUBLE_EQ(group_traffic(*plan.layer).combine_bytes, 512.0);
  const auto results =
      std::ranges::find(plan.group->memory.tensors, "results", &PlacedTensor::name);
  ASSERT_NE(results, plan.group->memory.tensors.end());
  EXPECT_EQ(results->bytes, 64 * 2 * 256 * 2);
}

Layer over_nccl(std::string_view more = R"("passes": ["forward", "backward"], )",
                std::string_view combine = "partial") {
  return parsed(with(
      more, R"({"ranks": 2, "transport": "nccl", "combine": ")" + std::string(combine) + "\"}"));
}

const BlockMove* move_to(const Plan& plan, std::string_view destination, std::string_view phase) {
  for (const CollectivePlan& step : plan.collectives)
    for (const BlockMove& move : step.moves)
      if (step.phase == phase && move.destination == destination) return &move;
  return nullptr;
}

// By hand: blocks are those of 64 tokens with 2 choices and 256 columns, whatever T is.
TEST(GroupPlanner, LetsNcclMoveTheSameBytesInEveryCall) {
  const Plan plan = planned(over_nccl());
  std::vector<std::string> steps;
  for (const CollectivePlan& step : plan.collectives) steps.push_back(step.operation);
  EXPECT_EQ(steps, (std::vector<std::string>{"gather_tokens", "exchange_results",
                                             "gather_tokens_grad", "exchange_results_grad"}));
  const auto expect_move = [&](std::string_view destination, std::string_view phase,
                               Movement movement, std::string_view source, int64_t bytes) {
    const BlockMove* const move = move_to(plan, destination, phase);
    ASSERT_NE(move, nullptr) << destination;
    EXPECT_EQ(move->movement, movement) << destination;
    EXPECT_EQ(move->source, source);
    EXPECT_EQ(move->bytes, bytes) << destination;
  };
  expect_move("choice_ids", "forward", Movement::kGather, "packed_ids", 64 * 2 * 4);
  expect_move("choice_probs", "forward", Movement::kGather, "packed_probs", 64 * 2 * 4);
  expect_move("x_q", "forward", Movement::kGather, "sent_x", 64 * 256);
  expect_move("x_scale_inv", "forward", Movement::kGather, "sent_x_scale_inv", 64 * 2 * 4);
  expect_move("results", "forward", Movement::kExchange, "sent_results", 64 * 256 * 2);
  expect_move("status_of_ranks", "forward", Movement::kGather, "group_status_0", 4);
  expect_move("results", "backward", Movement::kExchange, "sent_results", 64 * 256 * 2);
  expect_move("dprobs_of_ranks", "backward", Movement::kExchange, "slot_dprobs", 64 * 2 * 4);
  EXPECT_EQ(move_to(plan, "choice_ids", "backward"), nullptr);
  // Rows that backward reads arrive where they are kept.
  EXPECT_EQ(find_tensor(plan, "x_q")->role, TensorRole::kSaved);
  // No kernel reaches a peer: the status word is all that a group has.
  ASSERT_EQ(plan.group->memory.tensors.size(), 1U);
  EXPECT_EQ(plan.group->memory.tensors.front().name, "group_status");
  for (const KernelPlan& kernel : plan.kernels)
    for (const KernelArgument& argument : kernel.arguments)
      EXPECT_EQ(argument.tensor.find("_1"), std::string::npos) << argument.tensor;
}

// A step's tensors are alive on both sides of it: none shares memory with what its neighbors use.
TEST(GroupPlanner, KeepsWhatNcclMoves) {
  for (const std::string_view combine : {"partial", "rows"}) {
    const Plan plan = planned(over_nccl(R"("passes": ["forward", "backward"], )", combine));
    for (const CollectivePlan& step : plan.collectives) {
      const KernelPlan &before = plan.kernels[static_cast<std::size_t>(step.before) - 1],
                       &after = plan.kernels[static_cast<std::size_t>(step.before)];
      EXPECT_EQ(before.phase, step.phase);
      EXPECT_EQ(after.phase, step.phase);
      for (const BlockMove& move : step.moves)
        for (const std::string& name : {move.source, move.destination}) {
          const TensorPlan& moved = *find_tensor(plan, name);
          if (moved.role != TensorRole::kWorkspace) continue;
          for (const TensorPlan& other : plan.tensors) {
            if (other.role != TensorRole::kWorkspace || other.name == name) continue;
            if (!touches(before, other.name) && !touches(after, other.name)) continue;
            EXPECT_TRUE(other.workspace_offset >= moved.workspace_offset + moved.bytes ||
                        moved.workspace_offset >= other.workspace_offset + other.bytes)
                << step.operation << ": " << name << " and " << other.name;
          }
        }
    }
  }
}

TEST(GroupPlanner, SendsEveryRowOverNcclIfRowsGoHome) {
  const Plan plan = planned(over_nccl("", "rows"));
  EXPECT_EQ(move_to(plan, "results", "forward")->bytes, 64 * 2 * 256 * 2);
  const auto forward = operations_of(plan, "forward");
  EXPECT_EQ(std::vector(forward.end() - 2, forward.end()),
            (std::vector<std::string>{"spread_rows", "combine_arrived"}));
  EXPECT_EQ(group_traffic(*plan.layer).combine_bytes, 2 * 512.0);
}

TEST(GroupPlanner, PlansNoStepsForPeersOrOneRank) {
  EXPECT_TRUE(planned(parsed(with(""))).collectives.empty());
  const Plan one = planned(parsed(with("", R"({"ranks": 1, "transport": "nccl"})")));
  EXPECT_TRUE(one.collectives.empty());
}

TEST(GroupPlanner, TellsRanksApartByTheirTransport) {
  const Plan peers = planned(parsed(with(""))), nccl = planned(over_nccl(""));
  EXPECT_NE(group_identity(peers), group_identity(nccl));
  EXPECT_EQ(group_identity(nccl), group_identity(planned(over_nccl(""), 1)));
}

TEST(GroupPlanner, PrintsStepsBetweenKernels) {
  const Plan plan = planned(over_nccl(""));
  const std::string text = print_plan(plan, true);
  // 2 * 64 * 2 * 4 of choices, 64 * 256 + 64 * 2 * 4 of rows, 64 * 256 * 2 + 4 of results.
  EXPECT_NE(text.find("50692 to each other rank in a forward call"), std::string::npos) << text;
  const auto gather = text.find("gather_tokens"), take = text.find("take_choices");
  EXPECT_LT(text.find("pack_choices"), gather);
  EXPECT_LT(gather, take);
  EXPECT_NE(text.find("gather sent_x to x_q 16384"), std::string::npos) << text;
  const std::string json = plan_to_json(plan);
  EXPECT_NE(json.find("\"transport\": \"nccl\""), std::string::npos);
  EXPECT_NE(json.find("\"operation\": \"exchange_results\""), std::string::npos);
  EXPECT_EQ(plan_to_json(planned(parsed(with("")))).find("\"collectives\""), std::string::npos);
}

TEST(GroupPlanner, PrintsTheGroup) {
  const Plan plan = planned(parsed(with("")));
  const std::string text = print_plan(plan, false);
  EXPECT_NE(text.find("on a group of 2 ranks"), std::string::npos);
  EXPECT_NE(text.find(std::to_string(plan.group->memory.bytes)), std::string::npos);
  EXPECT_NE(
      plan_to_json(plan).find("\"memory_bytes\": " + std::to_string(plan.group->memory.bytes)),
      std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
