// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "tests/unit/planner/candidate_bounds.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace moejit::compiler {
namespace {

constexpr std::size_t kMostCandidatesOfChain = 29;

const RowChainSpec kPermute{.load = LoadStage::kQuantizedRows,
                            .quantize = QuantizeStage::kKeep,
                            .store = StoreStage::kPermuted,
                            .columns = 7168,
                            .local_experts = 32,
                            .top_k = 8,
                            .rows_per_burst = 432};
const RowChainSpec kQuantize{.columns = 7168};
const RowChainSpec kUnpermute{.load = LoadStage::kCombinedRows,
                              .quantize = QuantizeStage::kNone,
                              .columns = 7168,
                              .top_k = 8};
const RowChainSpec kActivation{.load = LoadStage::kGatedRows,
                               .transform = TransformStage::kActivationProbability,
                               .store = StoreStage::kGroupedRows,
                               .columns = 2048,
                               .local_experts = 32,
                               .segments_in_flight = 2};
const RowChainSpec kGradient{.load = LoadStage::kGatedGradientRows,
                             .transform = TransformStage::kActivationBackward,
                             .store = StoreStage::kGroupedGatedRows,
                             .columns = 2048,
                             .local_experts = 32};
const std::vector<RowChainSpec> kChains = {kPermute, kQuantize, kUnpermute, kActivation, kGradient};

bool has(const std::vector<Candidate<RowChainSpec>>& candidates, const Choices& choices) {
  return std::ranges::count(candidates, choices, &Candidate<RowChainSpec>::choices) == 1;
}

TEST(ChainCandidates, BeginWithTheUsualSpecAndAreLegalAndFew) {
  for (const RowChainSpec& usual : kChains) {
    SCOPED_TRACE(to_string(usual));
    const auto candidates = candidates_of(usual, kBounds);
    EXPECT_EQ(candidates.front().spec, usual);
    EXPECT_GE(candidates.size(), 7U);
    EXPECT_LE(candidates.size(), kMostCandidatesOfChain);
    std::set<Choices> choices;
    for (const auto& [spec, chosen] : candidates) {
      EXPECT_TRUE(choices.insert(chosen).second) << to_string(chosen);
      EXPECT_EQ(chosen, choices_of(spec));
      // A burst is whole steps: device code asserts it.
      EXPECT_EQ(spec.rows_per_burst * 56 % (spec.threads / 8 * spec.segments_in_flight), 0);
    }
  }
}

// All that is not a knob is what the usual spec has.
TEST(ChainCandidates, DifferInKnobsAlone) {
  for (const RowChainSpec& usual : kChains)
    for (auto [spec, choices] : candidates_of(usual, kBounds)) {
      EXPECT_EQ(problem_name(spec, kBounds), problem_name(usual, kBounds));
      spec.threads = usual.threads;
      spec.segments_in_flight = usual.segments_in_flight;
      spec.threads_per_sm = usual.threads_per_sm;
      spec.rows_per_burst = usual.rows_per_burst;
      EXPECT_EQ(spec, usual);
    }
}

// A byte of each of 7168 columns: 0, 146, 292, 438, 585 and 1170 rows, in steps of 16. 438 rows are
// the usual 432.
TEST(ChainCandidates, OfPermutingHaveBurstsOfUpToEightMebibytes) {
  std::set<int32_t> bursts;
  for (const auto& candidate : candidates_of(kPermute, kBounds))
    bursts.insert(candidate.spec.rows_per_burst);
  EXPECT_EQ(bursts, (std::set<int32_t>{0, 144, 288, 384, 416, 432, 576, 1168}));
  EXPECT_FALSE(choices_of(kQuantize).contains("rows_per_burst"));
}

// The first burst is never asked for, so one that holds all tokens is none.
TEST(ChainCandidates, OfPermutingFewTokensHaveBurstsThatAreFollowedByOthers) {
  CallBounds bounds = kBounds;
  for (const int64_t tokens : {500, 576}) {  // 576 rows are one of the bursts
    bounds.max_tokens = tokens;
    for (const auto& candidate : candidates_of(kPermute, bounds))
      EXPECT_LT(candidate.spec.rows_per_burst, tokens);
  }
}

// An SM has 65536 registers: 32 for each of 2048 threads, or 128 for each of 512.
TEST(ChainCandidates, HaveRegistersForWhatIsInFlight) {
  const auto quantize = candidates_of(kQuantize, kBounds);
  const auto choices = [](int64_t segments, int64_t threads_of_sm) {
    return Choices{
        {"threads", 128}, {"segments_in_flight", segments}, {"threads_per_sm", threads_of_sm}};
  };
  EXPECT_TRUE(has(quantize, choices(1, 2048)));
  EXPECT_FALSE(has(quantize, choices(2, 2048)));
  EXPECT_TRUE(has(quantize, choices(2, 1536)));
  EXPECT_TRUE(has(quantize, choices(4, 1024)));
  EXPECT_FALSE(has(quantize, choices(4, 1536)));
  const auto gradient = candidates_of(kGradient, kBounds);
  EXPECT_TRUE(has(gradient, choices(1, 768)));
  EXPECT_FALSE(has(gradient, choices(1, 1024)));
  EXPECT_TRUE(has(gradient, choices(2, 512)));
  EXPECT_FALSE(has(gradient, choices(2, 768)));
}

// One token has 56 segments: a CTA of 256 threads has 32 in a step and a CTA of 128 threads with
// four segments in flight 64.
TEST(ChainCandidates, OfFewRowsLeaveWorkForTwoCtas) {
  CallBounds bounds = kBounds;
  bounds.max_tokens = 1;
  const auto candidates = candidates_of(kQuantize, bounds);
  EXPECT_TRUE(
      has(candidates, {{"threads", 256}, {"segments_in_flight", 1}, {"threads_per_sm", 1024}}));
  EXPECT_FALSE(
      has(candidates, {{"threads", 128}, {"segments_in_flight", 4}, {"threads_per_sm", 1024}}));
}

TEST(ChainCandidates, ProblemsNameWhatTheyReadAndWriteAndRowsOfAClass) {
  EXPECT_EQ(problem_name(kQuantize, kBounds),
            "row_chain load=rows transform=identity quantize=1x128 store=rows columns=7168 "
            "tokens=8192");
  EXPECT_EQ(problem_name(kActivation, kBounds),
            "row_chain load=gated_rows transform=activation_probability activation=swiglu "
            "quantize=1x128 store=grouped_rows columns=2048 local_experts=32 splits_alignment=128 "
            "rows=65536");
  EXPECT_EQ(problem_name(kPermute, kBounds),
            "row_chain load=quantized_rows transform=identity quantize=keep store=permuted "
            "columns=7168 local_experts=32 top_k=8 splits_alignment=128 tokens=8192 rows=65536");
  RowChainSpec others = kGradient;
  others.tells_dprobs = false;
  others.is_interleaved = true;
  others.pitch = 2176;
  EXPECT_NE(problem_name(others, kBounds).find(" pitch=2176 "), std::string::npos);
  EXPECT_NE(problem_name(others, kBounds).find(" tells_dprobs=false interleaved=true "),
            std::string::npos);
}

// This rank has 32 of 256 experts, so it gets an eighth of the choices of 8192 tokens.
TEST(ChainCandidates, ProblemsOfARankOfManyNameTheRowsThatItHas) {
  CallBounds bounds = kBounds;
  bounds.experts = 256;
  EXPECT_EQ(mean_rows(bounds), 8192);
  EXPECT_TRUE(problem_name(kPermute, bounds).ends_with(" tokens=8192 rows=8192"));
  bounds.max_permuted_rows = 1000;
  EXPECT_EQ(mean_rows(bounds), 1000);
  EXPECT_EQ(mean_rows({}), 1);
}

}  // namespace
}  // namespace moejit::compiler
