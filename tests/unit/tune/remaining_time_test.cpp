// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/remaining_time.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace moejit::tune {
namespace {

TEST(RemainingTime, CountsTheCandidatesOfEachKind) {
  const std::vector<ProblemTime> problems = {
      {.kind = "gemm", .candidates = 10, .seconds = 20.0},
      {.kind = "chain", .candidates = 4, .seconds = 2.0},
      {.kind = "chain", .candidates = 8},
      {.kind = "gemm", .candidates = 5},
  };
  EXPECT_DOUBLE_EQ(*remaining_seconds(problems, 2), 8 * 0.5 + 5 * 2.0);
}

TEST(RemainingTime, TakesAKindThatWasNotMeasuredForTheOthersMean) {
  const std::vector<ProblemTime> problems = {{.kind = "gemm", .candidates = 10, .seconds = 20.0},
                                             {.kind = "chain", .candidates = 4}};
  EXPECT_DOUBLE_EQ(*remaining_seconds(problems, 1), 8.0);
}

TEST(RemainingTime, AddsTheOpeningOfEachSubjectOnce) {
  const std::vector<ProblemTime> problems = {
      {.kind = "gemm", .candidates = 10, .opens_subject = true, .seconds = 50.0},
      {.kind = "gemm", .candidates = 10, .seconds = 20.0},
      {.kind = "gemm", .candidates = 10, .opens_subject = true},
      {.kind = "gemm", .candidates = 10},
  };
  EXPECT_DOUBLE_EQ(*remaining_seconds(problems, 2), 30.0 + 20.0 + 20.0);
}

TEST(RemainingTime, IgnoresProblemsThatWereSettledOrLeftOut) {
  const std::vector<ProblemTime> problems = {{.kind = "gemm", .candidates = 10, .seconds = 20.0},
                                             {.kind = "gemm", .candidates = 10},  // did not run
                                             {.kind = "gemm", .candidates = 0},   // settled
                                             {.kind = "gemm", .candidates = 10}};
  EXPECT_DOUBLE_EQ(*remaining_seconds(problems, 2), 20.0);
}

TEST(RemainingTime, IsUnknownBeforeAnyProblemWasMeasured) {
  const std::vector<ProblemTime> problems = {{.kind = "gemm", .candidates = 10},
                                             {.kind = "gemm", .candidates = 10}};
  EXPECT_EQ(remaining_seconds(problems, 1), std::nullopt);
  EXPECT_EQ(remaining_seconds({}, 0), 0.0);
}

TEST(RemainingTime, KnowsTheKindOfAProblem) {
  EXPECT_EQ(kind_of_problem("row_chain load=rows k=128"), "row_chain");
  EXPECT_EQ(kind_of_problem("row_chain"), "row_chain");
}

// Sweeps of two layers, whose GEMMs take four times as long as their chains, and are more at the
// beginning of each layer. Opening a layer takes as long as four GEMMs. Times differ by up to 20 %.
std::vector<ProblemTime> sweep_of_two_kinds(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> differs(0.8, 1.2);
  std::vector<ProblemTime> problems;
  for (int layer = 0; layer < 2; ++layer)
    for (const char* kind : {"gemm", "gemm", "chain", "gemm", "gemm", "chain", "gemm", "chain",
                             "chain", "chain", "chain", "chain"}) {
      const bool multiplies = kind == std::string("gemm");
      const bool opens = problems.size() % 12 == 0;
      ProblemTime problem{.kind = kind,
                          .candidates = multiplies ? 20 + random() % 10 : 8 + random() % 12,
                          .opens_subject = opens};
      const auto candidates = static_cast<double>(problem.candidates);
      problem.seconds =
          ((multiplies ? 0.2 : 0.05) * candidates + (opens ? 20.0 : 0.0)) * differs(random);
      problems.push_back(problem);
    }
  return problems;
}

TEST(RemainingTime, IsWithin30PercentAfterAThirdOfASweep) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::vector<ProblemTime> problems = sweep_of_two_kinds(seed);
    for (std::size_t done = problems.size() / 3; done < problems.size(); ++done) {
      double left = 0.0;
      for (std::size_t i = done; i < problems.size(); ++i) left += *problems[i].seconds;
      EXPECT_NEAR(*remaining_seconds(problems, done), left, 0.3 * left) << seed << " " << done;
    }
  }
}

}  // namespace
}  // namespace moejit::tune
