// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/verified_entry.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

// An entry whose choices were 10 % faster.
VerifiedEntry recorded() {
  VerifiedEntry verified{.subject = "tiny gemm_fc1"};
  verified.entry.ratio = 0.90;
  verified.entry.ratio_low = 0.89;
  verified.entry.ratio_high = 0.91;
  return verified;
}

Outcome measured(double low, double median, double high, int32_t rounds = 8) {
  Outcome outcome;
  outcome.standings = {
      Standing{.rounds = rounds, .median_ratio = 1.0},
      Standing{.rounds = rounds, .median_ratio = median, .low = low, .high = high}};
  return outcome;
}

TEST(VerifiedEntry, HoldsIfTheIntervalsOverlap) {
  EXPECT_EQ(judged(recorded(), measured(0.905, 0.95, 1.02), false).verdict, Verdict::kHolds);
  EXPECT_EQ(judged(recorded(), measured(0.88, 0.89, 0.895), false).verdict, Verdict::kHolds);
}

TEST(VerifiedEntry, HoldsIfTheChoicesAreFasterThanTheyWere) {
  EXPECT_EQ(judged(recorded(), measured(0.7, 0.71, 0.72), false).verdict, Verdict::kHolds);
}

TEST(VerifiedEntry, HoldsIfTheChoicesAreStillFasterForCertain) {
  EXPECT_EQ(judged(recorded(), measured(0.97, 0.98, 0.99), false).verdict, Verdict::kHolds);
}

TEST(VerifiedEntry, NoLongerHoldsIfTheGainIsGone) {
  const VerifiedEntry verified = judged(recorded(), measured(0.98, 0.995, 1.01), false);
  EXPECT_EQ(verified.verdict, Verdict::kNoLongerHolds);
  EXPECT_EQ(verdict_text(verified), "no longer holds: the choices take -0.5 % time");
  EXPECT_EQ(verified.measured->median_ratio, 0.995);
}

TEST(VerifiedEntry, NoLongerHoldsIfTheKernelIsRuledOut) {
  Outcome outcome = measured(0.0, 0.0, 0.0, 0);
  outcome.standings.back().fault = Fault::kChangesBits;
  const VerifiedEntry verified = judged(recorded(), outcome, false);
  EXPECT_EQ(verdict_text(verified), "no longer holds: the kernel is ruled out: changes_bits");
  EXPECT_FALSE(verified.measured);
}

TEST(VerifiedEntry, OfAnotherTextIsOfAnotherKernel) {
  const VerifiedEntry verified = judged(recorded(), measured(0.88, 0.89, 0.9), true);
  EXPECT_EQ(verified.verdict, Verdict::kTextChanged);
  EXPECT_TRUE(verified.measured);
}

TEST(VerifiedEntry, IsNotJudgedByRoundsThatGiveNoInterval) {
  const VerifiedEntry verified = judged(recorded(), measured(0.0, 0.9, 1e9, 5), false);
  EXPECT_EQ(verdict_text(verified), "not measured: interrupted after 5 rounds");
}

TEST(VerifiedEntry, IsRacedUntilThereIsAnInterval) {
  Race race(2, verify_rules());
  for (int round = 0; round < 8; ++round) {
    ASSERT_FALSE(race.racing().empty()) << round;
    ASSERT_TRUE(
        race.add({.default_first_us = 1.0, .default_last_us = 1.0, .candidates_us = {{1, 2.0}}}));
  }
  EXPECT_TRUE(race.racing().empty());
}

compiler::TuningRecord record_of(std::vector<std::string> problems) {
  compiler::TuningRecord record;
  for (std::string& problem : problems) record.entries.push_back({.problem = std::move(problem)});
  return record;
}

TEST(SamplingOrder, IsTheSameForEqualRecords) {
  const std::vector<std::string> order = sampling_order(record_of({"a", "b", "c", "d", "e"}));
  EXPECT_EQ(sampling_order(record_of({"e", "d", "c", "b", "a"})), order);
  std::vector<std::string> sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
}

TEST(SamplingOrder, DiffersBetweenRecords) {
  std::vector<std::string> firsts;
  for (const int64_t rounds : {6, 7, 8, 9, 10, 11, 12, 13}) {
    compiler::TuningRecord record = record_of({"a", "b", "c", "d", "e"});
    record.entries.front().rounds = rounds;
    firsts.push_back(sampling_order(record).front());
  }
  EXPECT_NE(std::ranges::count(firsts, firsts.front()), std::ssize(firsts));
}

}  // namespace
}  // namespace moejit::tune
