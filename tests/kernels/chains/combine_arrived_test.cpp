// SPDX-License-Identifier: Apache-2.0
// Sums of what came home from the experts of all ranks, against plain loops.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/collective_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <cmath>

namespace moejit::testing {
namespace {

constexpr int64_t kGuard = 64;  // elements behind an output that belong to somebody else
constexpr int64_t kColumns = 144, kMostTokens = 11, kRankExperts = 3;

// Values from 2^-20 to 2^20 of either sign: sums in another order have other bits.
std::vector<uint16_t> random_rows(int64_t count, uint64_t seed) {
  const reference::RandomStream stream(seed, 78);
  std::vector<uint16_t> rows(static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto exponent = static_cast<int>(stream.below(2 * i, 41)) - 20;
    rows[i] = reference::bf16_from_float(
        std::ldexp(static_cast<float>(stream.normal(2 * i + 1)), exponent));
  }
  return rows;
}

class CombineArrivedKernel : public Chains {
 protected:
  struct Case {
    int64_t ranks = 2, top_k = 4, tokens = kMostTokens;
    bool adds_rows = false;
    int64_t chosen = 0;  // experts that tokens choose among, the first ones; 0: all
  };

  void expect_sums(const Case& of, uint64_t seed) {
    const int64_t slots = of.ranks * kMostTokens, choices = of.tokens * of.top_k;
    const reference::RandomStream stream(seed, 79);
    std::vector<int32_t> ids(static_cast<size_t>(choices));
    const int64_t chosen = of.chosen > 0 ? of.chosen : of.ranks * kRankExperts;
    for (size_t i = 0; i < ids.size(); ++i)  // an expert may be chosen twice
      ids[i] = static_cast<int32_t>(stream.below(i, static_cast<uint32_t>(chosen + 1))) - 1;
    const auto rows = random_rows(slots * kColumns * (of.adds_rows ? of.top_k : 1), seed);
    std::vector<float> dprobs(static_cast<size_t>(slots * of.top_k));
    for (size_t i = 0; i < dprobs.size(); ++i)
      dprobs[i] = static_cast<float>(stream.normal(1000 + i));
    std::vector<uint32_t> words(static_cast<size_t>(of.ranks));
    for (size_t r = 0; r < words.size(); ++r) words[r] = 1U << r;

    const DeviceBuffer results = input("results", rows),
                       of_ranks = input("dprobs_of_ranks", dprobs),
                       status_of_ranks = input("status_of_ranks", words),
                       topk_ids = input("topk_ids", ids);
    const DeviceBuffer y = output<uint16_t>("y", of.tokens * kColumns + kGuard),
                       got_dprobs = output<float>("dprobs", choices + kGuard),
                       status = output<uint32_t>("status", 1);
    fill(status, 0);
    const device::CombineArrivedParams params{
        .results = results.as<const void>(),
        .dprobs_of_ranks = of_ranks.as<const float>(),
        .status_of_ranks = status_of_ranks.as<const uint32_t>(),
        .topk_ids = topk_ids.as<const void>(),
        .output = y.as<void>(),
        .dprobs = got_dprobs.as<void>(),
        .status = status.as<uint32_t>(),
        .tokens = of.tokens};
    const compiler::CombineArrivedSpec spec{
        .exchange = {.ranks = static_cast<int32_t>(of.ranks),
                     .rank_experts = static_cast<int32_t>(kRankExperts),
                     .top_k = static_cast<int32_t>(of.top_k),
                     .max_tokens = static_cast<int32_t>(kMostTokens),
                     .chunk_tokens = 4},
        .adds_rows = of.adds_rows,
        .columns = static_cast<int32_t>(kColumns),
        .has_dprobs = true,
        .threads = 128};
    run(spec, 2, params,
        {&results, &of_ranks, &status_of_ranks, &topk_ids, &y, &got_dprobs, &status});
    const auto got = y.download<uint16_t>();
    const auto wanted = of.adds_rows ? sums_of_rows(of, ids, rows) : sums_of_ranks(of, rows);
    EXPECT_TRUE(matches(compare_bf16({"y", kColumns}, head(got, of.tokens * kColumns), wanted)));
    EXPECT_TRUE(untouched_from(got, of.tokens * kColumns));
    const auto all_dprobs = got_dprobs.download<float>();
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int32_t id = ids[static_cast<size_t>(choice)];
      const int64_t place = id / kRankExperts * kMostTokens * of.top_k + choice;
      EXPECT_EQ(all_dprobs[static_cast<size_t>(choice)],
                id < 0 ? 0.0F : dprobs[static_cast<size_t>(place)])
          << "choice " << choice;
    }
    EXPECT_TRUE(untouched_from(all_dprobs, choices));
    EXPECT_EQ(status.download<uint32_t>().front(), (1U << of.ranks) - 1);
  }

 private:
  static float value(const std::vector<uint16_t>& rows, int64_t row, int64_t column) {
    return reference::float_from_bf16(rows[static_cast<size_t>(row * kColumns + column)]);
  }
  // By ranks, ascending.
  static std::vector<uint16_t> sums_of_ranks(const Case& of, const std::vector<uint16_t>& rows) {
    std::vector<uint16_t> sums;
    for (int64_t token = 0; token < of.tokens; ++token)
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0.0F;
        for (int64_t rank = 0; rank < of.ranks; ++rank)
          sum += value(rows, rank * kMostTokens + token, column);
        sums.push_back(reference::bf16_from_float(sum));
      }
    return sums;
  }
  // By experts, descending, and of choices of one expert the last first.
  static std::vector<uint16_t> sums_of_rows(const Case& of, const std::vector<int32_t>& ids,
                                            const std::vector<uint16_t>& rows) {
    std::vector<uint16_t> sums;
    for (int64_t token = 0; token < of.tokens; ++token)
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0.0F;
        for (int64_t expert = of.ranks * kRankExperts - 1; expert >= 0; --expert)
          for (int64_t k = of.top_k - 1; k >= 0; --k) {
            if (ids[static_cast<size_t>(token * of.top_k + k)] != expert) continue;
            const int64_t slot = expert / kRankExperts * kMostTokens + token;
            sum += value(rows, slot * of.top_k + k, column);
          }
        sums.push_back(reference::bf16_from_float(sum));
      }
    return sums;
  }
};

TEST_F(CombineArrivedKernel, AddsRanksInAscendingOrder) {
  for (const int64_t ranks : {2, 3, 4, 5, 8}) {
    SCOPED_TRACE(ranks);
    expect_sums({.ranks = ranks}, 1);
  }
}

TEST_F(CombineArrivedKernel, AddsRowsInTheOrderOfOneRank) {
  for (const int64_t top_k : {1, 4, 7, 9}) {
    SCOPED_TRACE(top_k);
    expect_sums({.ranks = 4, .top_k = top_k, .adds_rows = true}, 2);
    expect_sums({.ranks = 2, .top_k = top_k, .adds_rows = true, .chosen = 1}, 2);
  }
}

TEST_F(CombineArrivedKernel, TakesFewerTokensAndNone) {
  for (const int64_t tokens : {0, 1, 6}) {
    SCOPED_TRACE(tokens);
    expect_sums({.tokens = tokens}, 3);
    expect_sums({.tokens = tokens, .adds_rows = true}, 3);
  }
}

}  // namespace
}  // namespace moejit::testing
