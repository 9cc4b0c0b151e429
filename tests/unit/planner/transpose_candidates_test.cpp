// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "tests/unit/planner/candidate_bounds.h"

#include <gtest/gtest.h>
#include <set>

namespace moejit::compiler {
namespace {

const TransposeSpec kTranspose{.local_experts = 32, .columns = 2048};
const ColumnCastSpec kCast{.local_experts = 32, .columns = 2048};
const GroupColumnsSpec kGroupCast{.pass = ColumnPass::kCast, .local_experts = 32, .columns = 2048};
const GatedGradientSpec kGatedGradient{.local_experts = 32, .columns = 2048};

// 256, 384 and 512 threads of an SM in whole CTAs of 64 to 512: 3, 2 and 4.
const std::set<Choices> kAll = {
    {{"threads", 64}, {"threads_per_sm", 256}},  {{"threads", 128}, {"threads_per_sm", 256}},
    {{"threads", 256}, {"threads_per_sm", 256}}, {{"threads", 64}, {"threads_per_sm", 384}},
    {{"threads", 128}, {"threads_per_sm", 384}}, {{"threads", 64}, {"threads_per_sm", 512}},
    {{"threads", 128}, {"threads_per_sm", 512}}, {{"threads", 256}, {"threads_per_sm", 512}},
    {{"threads", 512}, {"threads_per_sm", 512}}};

template <typename Spec>
std::set<Choices> choices_of_candidates(const Spec& usual, const CallBounds& bounds) {
  std::set<Choices> choices;
  const auto candidates = candidates_of(usual, bounds);
  EXPECT_EQ(candidates.front().spec, usual);
  for (auto [spec, chosen] : candidates) {
    EXPECT_TRUE(choices.insert(chosen).second) << to_string(chosen);
    EXPECT_EQ(problem_name(spec, bounds), problem_name(usual, bounds));
    spec.threads = usual.threads;
    spec.threads_per_sm = usual.threads_per_sm;
    EXPECT_EQ(spec, usual);  // but for its knobs
  }
  return choices;
}

TEST(TransposeCandidates, HaveWholeCtasOfAnSmAndTheUsualOneFirst) {
  EXPECT_EQ(choices_of_candidates(kTranspose, kBounds), kAll);
  EXPECT_EQ(choices_of_candidates(kCast, kBounds), kAll);
  EXPECT_EQ(choices_of_candidates(kGroupCast, kBounds), kAll);
  EXPECT_EQ(choices_of_candidates(kGatedGradient, kBounds), kAll);
}

// A thread that counts takes twice the registers.
TEST(TransposeCandidates, ThatCountHaveAtMost256ThreadsOfAnSm) {
  TransposeSpec counting = kTranspose;
  counting.counts_flushed = true;
  for (const auto& candidate : candidates_of(counting, kBounds))
    EXPECT_EQ(candidate.choices.at("threads_per_sm"), 256);
}

// A token's row is one tile of 128 columns: one pair of warps has work.
TEST(TransposeCandidates, OfOneTileHaveNoMoreThreads) {
  TransposeSpec small = kTranspose;
  small.columns = 128;
  CallBounds bounds = kBounds;
  bounds.max_tokens = bounds.top_k = 1;
  for (const auto& candidate : candidates_of(small, bounds)) EXPECT_LE(candidate.spec.threads, 128);
}

TEST(TransposeCandidates, ProblemsNameWhatTheyReadAndWriteAndRowsOfAClass) {
  EXPECT_EQ(problem_name(kTranspose, kBounds),
            "transpose format=F8_E4M3 rule=ideal source=in_order columns=2048 local_experts=32 "
            "splits_alignment=128 rows=65536");
  TransposeSpec gathered = kTranspose;
  gathered.source = RowSource::kGathered;
  EXPECT_TRUE(problem_name(gathered, kBounds).ends_with(" rows=65536 tokens=8192"));
  EXPECT_EQ(problem_name(kCast, kBounds),
            "column_cast source=in_order columns=2048 local_experts=32 splits_alignment=128 "
            "rows=65536");
  GatedGradientSpec casts = kGatedGradient;
  casts.casts_columns = true;
  EXPECT_EQ(problem_name(casts, kBounds),
            "gated_gradient activation=swiglu columns=2048 casts_columns=true local_experts=32 "
            "splits_alignment=128 rows=65536");
  casts.pass = GradientPass::kAmax;
  EXPECT_EQ(problem_name(casts, kBounds),
            "gated_gradient activation=swiglu columns=2048 casts_columns=true pass=amax "
            "local_experts=32 splits_alignment=128 rows=65536");
  GatedGradientSpec some = kGatedGradient;
  some.tells_dprobs = false;
  EXPECT_EQ(problem_name(some, kBounds),
            "gated_gradient activation=swiglu columns=2048 tells_dprobs=false local_experts=32 "
            "splits_alignment=128 rows=65536");
}

}  // namespace
}  // namespace moejit::compiler
