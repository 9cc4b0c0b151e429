// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/tune_subjects.h"
#include "compiler/compiler.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::cli {
namespace {

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
  return {.name = name,
          .subject = name,
          .owner = owner,
          .worth = {.memory_us = microseconds, .launches = 1}};
}

TEST(TuneProblems, AreJoinedAndSortedByTheWorthOfTheirOwners) {
  std::vector<TuneProblem> problems = {problem("a", 0, 5.0), problem("b", 0, 6.0),
                                       problem("c", 1, 20.0), problem("b", 1, 4.0),
                                       problem("d", 2, 11.0)};
  join_problems(problems);
  // 0 is worth 5 + 10, since it keeps the b of both.
  EXPECT_EQ(subjects_of(problems), (std::vector<std::string>{"c", "b", "a", "d"}));
  EXPECT_EQ(microseconds_of(problems[1].worth), 10.0);
  EXPECT_DOUBLE_EQ(problems[0].share, 20.0 / 46.0);
}

TEST(TuneProblems, OfAVerificationHaveTheUsualChoicesAndThoseOfTheRecord) {
  const compiler::Target sim = *compiler::parse_target("sim");
  TuneSubjects subjects;
  subjects.layers = {{layer_of(64), 64, 0}};
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
}  // namespace moejit::cli
