// SPDX-License-Identifier: Apache-2.0
// Exchanges that permute rows while they are on the wire, and add the experts' rows while sums go
// home, against the reference's route, permute and unpermute of the slots: bit for bit, several
// epochs in a row with other routings and other numbers of tokens on each rank.
#include "moejit_device/params/status_bits.h"
#include "tests/gpu/permuted_exchange_fixture.h"
#include "tests/tested_target.h"

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::Exchange;

TEST_F(PermutedExchanges, QuantizeRowsOnTheWay) {
  Exchange shape = small();
  shape.tells_tokens = true;
  shape.keeps_rows = true;
  run_epochs(shape, 21);
}

TEST_F(PermutedExchanges, MoveBf16RowsWithoutProbabilities) {
  Exchange shape = small();
  shape.format = DType::kBF16;
  shape.moves_probs = false;
  shape.keeps_rows = true;
  run_epochs(shape, 22);
}

TEST_F(PermutedExchanges, BringGradientsOfProbabilitiesHome) {
  Exchange shape = small();
  shape.top_k = 3;
  shape.columns = 144;
  shape.has_dprobs = true;
  run_epochs(with_rows(shape), 23);
}

TEST_F(PermutedExchanges, TakeManyChoices) {
  Exchange shape = small();
  shape.experts = 64;
  shape.top_k = 9;
  shape.max_tokens = 7;
  run_epochs(with_rows(shape), 24);
}

TEST_F(PermutedExchanges, TakeOneToken) {
  Exchange shape = small();
  shape.top_k = 1;
  shape.max_tokens = 1;
  shape.columns = 16;
  run_epochs(with_rows(shape), 25);
}

// Scales of whole runs of 16 bytes are copied as rows are, others are stored by threads.
TEST_F(PermutedExchanges, CopyScales) {
  Exchange shape = small();
  shape.columns = 512;
  shape.max_tokens = 1026;  // two rows in each half of shared memory
  shape.top_k = 1;
  run_epochs(with_rows(shape), 34, 1);
}

// Threads add several runs of a row, the last ones not all of them.
TEST_F(PermutedExchanges, AddLongRows) {
  Exchange shape = small();
  shape.max_tokens = 5;
  shape.columns = 6160;
  run_epochs(with_rows(shape), 35);
}

TEST_F(PermutedExchanges, AddRowsThatDoNotFitInSharedMemory) {
  Exchange shape = small();
  shape.max_tokens = 3;
  shape.columns = 8208;
  shape.has_dprobs = true;
  run_epochs(with_rows(shape), 36);
}

// More choices of a chunk than a warp has lanes.
TEST_F(PermutedExchanges, ListManyChoices) {
  Exchange shape = small();
  shape.experts = 32;
  shape.top_k = 12;
  shape.max_tokens = 1026;
  shape.columns = 16;
  run_epochs(with_rows(shape), 37, 1);
}

// Threads sum the counts of so many experts in three shares of the pieces, of which the last is
// smaller.
TEST_F(PermutedExchanges, CountRowsInUnequalShares) {
  Exchange shape = small();
  shape.experts = 2 * 85;
  shape.max_tokens = 1100;
  shape.columns = 16;
  run_epochs(with_rows(shape), 38, 1);
}

// More units than CTAs, so that sending and receiving take turns, and chunks of several tokens.
TEST_F(PermutedExchanges, TakeTurns) {
  Exchange shape = small();
  shape.top_k = 1;
  shape.max_tokens = 2100;
  shape.columns = 16;
  run_epochs(with_rows(shape), 26, 1);
}

// CTAs of further SMs end at once, whichever these are.
TEST_F(PermutedExchanges, TakeOneSm) {
  Exchange shape = small();
  shape.sms = 1;
  shape.has_dprobs = true;
  run_epochs(with_rows(shape), 28);
}

TEST_F(PermutedExchanges, TakeSomeSms) {
  Exchange shape = small();
  shape.sms = 3;
  shape.format = DType::kBF16;
  shape.tells_tokens = true;
  shape.keeps_rows = true;
  run_epochs(shape, 29);
}

// What peers have in the places of these rows is of another epoch.
TEST_F(PermutedExchanges, SendZerosForRowsThatHaveNoPlace) {
  Exchange shape = small();
  shape.max_permuted_rows = 64;  // of 48 rows of a rank in the mean, and up to 60 pad rows
  shape.splits_alignment = PermutedExchanges::kAlignment;
  joins_route_ = true;
  open(shape, 27);
  if (IsSkipped() || HasFatalFailure()) return;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<RankInputs> inputs;
    for (uint64_t rank = 0; rank < 2; ++rank)
      inputs.push_back(random_rank(shape.max_tokens, 2 * epoch + rank));
    dispatch(inputs);
    combine(inputs);
    expect_combined(inputs);
  }
  for (const auto& rank : each_)
    EXPECT_EQ(rank->get<uint32_t>("group_status"),
              std::vector<uint32_t>{device::kStatusRowOverflow});
}

class ManyRanksPermuted : public PermutedExchanges,
                          public ::testing::WithParamInterface<int64_t> {};

TEST_P(ManyRanksPermuted, ExchangeRows) {
  if (tested_target() != "sim") GTEST_SKIP() << "two GPUs are what there is";
  Exchange shape = small();
  shape.ranks = GetParam();
  shape.experts = 16;
  shape.top_k = 4;
  shape.max_tokens = 10;
  shape.columns = 144;
  shape.has_dprobs = true;
  for (uint64_t seed = 30; seed < 33; ++seed) {
    run_epochs(with_rows(shape), seed, 2);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ManyRanksPermuted, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace moejit::testing
