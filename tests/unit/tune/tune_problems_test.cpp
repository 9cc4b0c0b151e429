// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "compiler/tuning.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/tune/tune_problem.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using runtime::HostTensor;
using runtime::TensorMap;

using testing::succeeded;

compiler::Layer layer_of(int64_t max_tokens) {
  const std::string json = fmt::format(
      R"({{"name": "one", "experts": 8, "local_experts": 8, "top_k": 2, "hidden": 256,
           "intermediate": 128, "activation": "swiglu", "dtype": "bf16", "recipe": "fp8_flow",
           "splits_alignment": 16, "max_tokens": {}}})",
      max_tokens);
  const auto layer = compiler::parse_layer(json, "layer.json");
  EXPECT_TRUE(succeeded(layer));
  return *layer;
}

std::vector<std::string> subjects_of(const std::vector<TuneProblem>& problems) {
  std::vector<std::string> subjects;
  for (const TuneProblem& problem : problems) subjects.push_back(problem.subject);
  return subjects;
}

TuneProblem problem(std::string name, std::size_t owner, double microseconds) {
  return {.name = name, .subject = name, .owner = owner, .step_us = microseconds};
}

TEST(TuneProblems, AreJoinedAndSortedByTheWorthOfTheirOwners) {
  std::vector<TuneProblem> problems = {problem("a", 0, 5.0), problem("b", 0, 6.0),
                                       problem("c", 1, 20.0), problem("b", 1, 4.0),
                                       problem("d", 2, 11.0)};
  join_problems(problems);
  // 0 takes 5 + 10, since it keeps the b of both.
  EXPECT_EQ(subjects_of(problems), (std::vector<std::string>{"c", "b", "a", "d"}));
  EXPECT_EQ(problems[1].step_us, 10.0);
  EXPECT_DOUBLE_EQ(problems[0].share, 20.0 / 46.0);
}

TEST(TuneProblems, OfAVerificationHaveTheUsualChoicesAndThoseOfTheRecord) {
  const compiler::Target sim = *compiler::parse_target("sim");
  TuneSubjects subjects;
  subjects.layers = {{layer_of(1024), 1024, 0}};
  const auto all = collect_problems(subjects, sim);
  ASSERT_TRUE(succeeded(all));
  ASSERT_GT(all->size(), 3U);
  const auto entry = [&](std::size_t problem, const compiler::Choices& choices) {
    subjects.verified.push_back({.problem = (*all)[problem].name, .choices = choices});
  };
  entry(0, (*all)[0].candidates[2]);
  entry(1, (*all)[1].candidates[0]);
  entry(2, {{"stages", 99}});
  subjects.verified.push_back({.problem = "of another layer"});
  const auto kept = collect_problems(subjects, sim);
  ASSERT_TRUE(succeeded(kept));
  ASSERT_EQ(kept->size(), 3U);
  EXPECT_EQ((*kept)[0].candidates, (std::vector{(*all)[0].candidates[0], (*all)[0].candidates[2]}));
  EXPECT_EQ((*kept)[1].candidates, std::vector{(*all)[1].candidates[0]});
  EXPECT_EQ((*kept)[2].candidates, std::vector{(*all)[2].candidates[0]});
}

// A sweep writes the digests that plans ask for, of all kernels of the problem.
TEST(TuneProblems, HaveTheDigestsOfEachKernelThatSharesThem) {
  const compiler::Target target;
  compiler::Layer layer = layer_of(64);
  layer.dispatch = compiler::Dispatch::kFp8;
  layer.passes.push_back(compiler::Pass::kBackward);
  const auto problems = collect_problems({.layers = {{layer, 64, 0}}, .gemms = {}}, target);
  ASSERT_TRUE(succeeded(problems));
  const auto problem = std::ranges::find(*problems, "one quantize", &TuneProblem::subject);
  ASSERT_NE(problem, problems->end());
  const auto digests = text_digests_of(*problem, target);
  ASSERT_TRUE(succeeded(digests));
  ASSERT_EQ(digests->size(), problem->candidates.size());
  for (const std::size_t candidate : {std::size_t{0}, problem->candidates.size() - 1}) {
    const compiler::Tuning tuning = tuning_of(problem->name, problem->candidates[candidate]);
    const auto plan = plan_layer(layer, target, {.tuning = &tuning});
    ASSERT_TRUE(succeeded(plan));
    EXPECT_EQ(std::ranges::count(plan->kernels, problem->name, &compiler::KernelPlan::problem), 2);
    for (const compiler::KernelPlan& kernel : plan->kernels) {
      if (kernel.problem != problem->name) continue;
      EXPECT_EQ(*measured_text_digest(kernel, target), (*digests)[candidate]) << kernel.operation;
    }
  }
}

compiler::Layer group_layer(std::string_view recipe, std::string_view more, int64_t ranks = 2) {
  const std::string json = fmt::format(
      R"({{"name": "group", "experts": 16, "top_k": 4, "hidden": 512, "intermediate": 256,
           "recipe": "{}", "splits_alignment": 64, "max_tokens": 1024,
           "passes": ["forward", "backward"], "expert_parallel": {{"ranks": {}, {}}}}})",
      recipe, ranks, more);
  const auto layer = compiler::parse_layer(json, "layer.json");
  EXPECT_TRUE(succeeded(layer));
  return *layer;
}

std::string text_of(const compiler::KernelPlan& kernel) {
  const auto source = emit_kernel(kernel, compiler::Target{});
  EXPECT_TRUE(succeeded(source));
  return source ? source->text : std::string();
}

class TuneProblemsOfGroups : public ::testing::TestWithParam<std::string_view> {};

// The problems are those for which the group's planner looks into records, and the kernels that are
// measured are those that ranks run: entries are no hints there.
TEST_P(TuneProblemsOfGroups, AreThoseThatAGroupsPlanAsksFor) {
  for (const std::string_view way :
       {R"("combine": "partial")", R"("combine": "rows")", R"("transport": "nccl")"})
    for (const int64_t ranks : {1, 2, 8}) {
      const TunedLayer tuned{group_layer(GetParam(), way, ranks), 1024, 0};
      const compiler::Target target;
      const auto problems = collect_problems({.layers = {tuned}, .gemms = {}}, target);
      const auto plan = plan_layer(tuned.layer, target);
      const auto unmeasured = unmeasured_kernels(tuned, target);
      ASSERT_TRUE(succeeded(problems));
      ASSERT_TRUE(succeeded(plan));
      ASSERT_TRUE(succeeded(unmeasured));
      for (const compiler::KernelPlan& kernel : plan->kernels) {
        if (kernel.problem.empty()) continue;
        const auto found = std::ranges::find(*problems, kernel.problem, &TuneProblem::name);
        const bool is_left_out = std::ranges::count(*unmeasured, "group " + kernel.operation) > 0;
        EXPECT_EQ(found == problems->end(), is_left_out) << kernel.operation;
        EXPECT_FALSE(is_left_out && kernel.operation.starts_with("gemm")) << kernel.operation;
        if (found == problems->end()) continue;
        const auto measured = found->plan({});
        ASSERT_TRUE(succeeded(measured));
        // Some kernels of a layer have one problem, and texts with names of their own.
        const auto same = std::ranges::find((*measured)->kernels, kernel.operation,
                                            &compiler::KernelPlan::operation);
        ASSERT_NE(same, (*measured)->kernels.end()) << kernel.operation;
        EXPECT_EQ(text_of(*same), text_of(kernel)) << kernel.operation;
        EXPECT_EQ(found->candidates.front(), kernel.choices) << kernel.operation;
      }
      for (const TuneProblem& problem : *problems)
        EXPECT_GT(std::ranges::count(plan->kernels, problem.name, &compiler::KernelPlan::problem),
                  0)
            << problem.subject;
    }
}
INSTANTIATE_TEST_SUITE_P(Recipes, TuneProblemsOfGroups,
                         ::testing::Values("bf16", "fp8_flow", "fp8_blockwise", "fp8_current",
                                           "fp8_delayed", "fp8_rowwise", "mxfp8", "nvfp4"));

TEST(TuneProblemsOfARank, AreAllMeasuredUnlessRowsAreCopiedForPeers) {
  const compiler::Target target;
  const auto of = [&](std::string_view recipe, std::string_view way) {
    const auto kernels = unmeasured_kernels(TunedLayer{group_layer(recipe, way), 1024, 0}, target);
    EXPECT_TRUE(succeeded(kernels));
    return *kernels;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(of("fp8_flow", R"("combine": "partial")"), Names());
  EXPECT_EQ(of("fp8_blockwise", R"("combine": "partial")"), Names{"group keep_x"});
  EXPECT_EQ(of("fp8_flow", R"("transport": "nccl")"),
            (Names{"group quantize", "group quantize_dy"}));
}

// A rank has a share of the choices of all ranks' tokens in the mean, and many tokens have none.
TEST(TuneProblemsOfARank, AreMeasuredWithTheRowsThatARankHasInTheMean) {
  for (const int64_t ranks : {2, 8}) {
    const TunedLayer tuned{group_layer("fp8_flow", R"("combine": "rows")", ranks), 512, 7};
    EXPECT_EQ(tuned.measured_tokens(), 512 * ranks);
    EXPECT_EQ(tuned.measured_layer().max_tokens, 1024 * ranks);
    const HostTensor ids =
        trial::random_topk_ids(tuned.measured_layer(), tuned.measured_tokens(), {tuned.seed});
    ASSERT_EQ(ids.shape, (std::vector<int64_t>{512 * ranks, 4}));
    int64_t here = 0;
    for (const int64_t id : trial::expert_ids(ids)) {
      EXPECT_LT(id, 16 / ranks);
      here += id >= 0 ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(here), 512 * 4, 150);
  }
}

TEST(TuneProblemsOfARank, RunOnOneGpu) {
  const std::string json = R"({"name": "small", "experts": 4, "top_k": 2, "hidden": 256,
      "intermediate": 128, "recipe": "fp8_flow", "splits_alignment": 16, "max_tokens": 16,
      "expert_parallel": {"ranks": 2}})";
  const auto layer = compiler::parse_layer(json, "layer.json");
  ASSERT_TRUE(succeeded(layer));
  const auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  const auto problems =
      collect_problems({.layers = {{*layer, 9, 0}}, .gemms = {}}, (*device)->target());
  ASSERT_TRUE(succeeded(problems));
  const auto gemm = std::ranges::find(*problems, "small gemm_fc2", &TuneProblem::subject);
  ASSERT_NE(gemm, problems->end());
  const auto opened = gemm->open(testing::test_engine(), **device);
  ASSERT_TRUE(succeeded(opened));
  const auto usual = opened->kernel.make(gemm->candidates.front());
  ASSERT_TRUE(succeeded(usual));
  EXPECT_TRUE(succeeded((*usual)()));
  EXPECT_TRUE(succeeded((*device)->synchronize(nullptr)));
}

TEST(TuneProblems, OfLayersWithOneNameHaveMemoryOfTheirOwn) {
  TuneSubjects subjects;
  subjects.layers = {{layer_of(64), 64, 0}, {layer_of(256), 256, 0}};
  const auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  const auto problems = collect_problems(subjects, (*device)->target());
  ASSERT_TRUE(succeeded(problems));
  std::vector<int64_t> bytes;
  for (const std::size_t owner : {0, 1}) {
    const auto first = std::ranges::find(*problems, owner, &TuneProblem::owner);
    ASSERT_NE(first, problems->end());
    const auto opened = first->open(testing::test_engine(), **device);
    ASSERT_TRUE(succeeded(opened));
    ASSERT_FALSE(opened->kernel.written.empty());
    bytes.push_back(opened->kernel.written.front().bytes);
  }
  EXPECT_NE(bytes[0], bytes[1]);
}

}  // namespace
}  // namespace moejit::tune
