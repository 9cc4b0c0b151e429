// SPDX-License-Identifier: Apache-2.0
// Dispatch of rows to the slots of ranks, against loops over tokens: bit for bit, several epochs in
// a row with other routings and other numbers of tokens on each rank.
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/exchanged_rank.h"
#include "tests/support/matchers.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::ExchangeStep;
using reference::RandomStream;

compiler::Exchange at_rank(compiler::Exchange exchange, int32_t rank) {
  exchange.rank = rank;
  return exchange;
}

// The inputs of one rank in one epoch.
struct RankTokens {
  int64_t tokens = 0;
  std::vector<uint16_t> x;   // [T, H]
  std::vector<int32_t> ids;  // [T, K]
  std::vector<float> probs;  // [T, K]
};

RankTokens random_rank(const compiler::Exchange& shape, int64_t tokens, uint64_t seed) {
  return {.tokens = tokens,
          .x = reference::random_activations(tokens, shape.columns, seed),
          .ids = reference::random_routing(tokens, shape.experts, shape.top_k, {seed}),
          .probs = reference::random_probs(tokens, shape.top_k, seed)};
}

// The shape of most tests.
compiler::Exchange small() {
  return {.experts = 8, .top_k = 2, .max_tokens = 24, .columns = 272, .epsilon = 1e-10f};
}

class Exchanges : public ::testing::Test {
 protected:
  void open(const compiler::Exchange& shape, uint64_t seed) {
    shape_ = shape;
    each_.clear();
    ranks_.reset();  // a group takes the stacks of all threads of its SMs
    std::string why_not;
    ranks_ = Ranks::open(static_cast<int32_t>(shape.ranks), ExchangedRank::heap_bytes(shape), seed,
                         why_not);
    if (ranks_ == nullptr && !why_not.empty()) GTEST_SKIP() << why_not;
    ASSERT_NE(ranks_, nullptr);
    for (int32_t rank = 0; rank < shape.ranks; ++rank)
      each_.push_back(std::make_unique<ExchangedRank>(*ranks_, at_rank(shape, rank)));
  }

  int32_t rank_experts() const { return static_cast<int32_t>(shape_.experts / shape_.ranks); }
  int32_t rank_of(int32_t id) const { return id < 0 ? -1 : id / rank_experts(); }
  bool has_expert(const RankTokens& source, int64_t token, int32_t rank) const {
    for (int32_t k = 0; k < shape_.top_k; ++k)
      if (rank_of(source.ids[static_cast<size_t>(token * shape_.top_k + k)]) == rank) return true;
    return false;
  }

  void dispatch(const std::vector<RankTokens>& inputs) {
    for (size_t r = 0; r < each_.size(); ++r) {
      ExchangedRank& rank = *each_[r];
      const RankTokens& own = inputs[r];
      rank.set("input", own.x);
      if (shape_.topk_ids == DType::kI64)
        rank.set("topk_ids", std::vector<int64_t>(own.ids.begin(), own.ids.end()));
      else
        rank.set("topk_ids", own.ids);
      rank.set("topk_probs", own.probs);
      rank.run(ExchangeStep::kChoices, own.tokens);
      rank.run(ExchangeStep::kDispatch, own.tokens);
      rank.run(ExchangeStep::kAwait, own.tokens);
    }
    ASSERT_TRUE(succeeded(ranks_->synchronize()));
  }

  void expect_arrived(const std::vector<RankTokens>& inputs) {
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      const auto slot_ids = each_[static_cast<size_t>(r)]->get<int32_t>("slot_ids");
      const auto slot_probs = each_[static_cast<size_t>(r)]->get<float>("slot_probs");
      const auto slots = each_[static_cast<size_t>(r)]->get<uint8_t>("slots");
      const auto scales = shape_.format == DType::kF8E4M3
                              ? each_[static_cast<size_t>(r)]->get<float>("slot_scales")
                              : std::vector<float>();
      for (int32_t source = 0; source < shape_.ranks; ++source) {
        const RankTokens& from = inputs[static_cast<size_t>(source)];
        expect_choices(from, source, r, slot_ids, slot_probs);
        expect_rows(from, source, r, slots, scales);
      }
    }
  }

  void expect_choices(const RankTokens& from, int32_t source, int32_t rank,
                      const std::vector<int32_t>& slot_ids, const std::vector<float>& slot_probs) {
    int64_t wrong = 0;
    for (int64_t token = 0; token < shape_.max_tokens; ++token)
      for (int32_t k = 0; k < shape_.top_k; ++k) {
        const auto slot =
            static_cast<size_t>((source * int64_t{shape_.max_tokens} + token) * shape_.top_k + k);
        const auto choice = static_cast<size_t>(token * shape_.top_k + k);
        const bool is_here = token < from.tokens && rank_of(from.ids[choice]) == rank;
        const int32_t id = is_here ? from.ids[choice] - rank * rank_experts() : -1;
        const float prob = is_here ? from.probs[choice] : 0.0f;
        wrong += slot_ids[slot] != id || slot_probs[slot] != prob;
      }
    EXPECT_EQ(wrong, 0) << "choices of rank " << source << " at rank " << rank;
  }

  void expect_rows(const RankTokens& from, int32_t source, int32_t rank,
                   const std::vector<uint8_t>& slots, const std::vector<float>& scales) {
    const int64_t columns = shape_.columns, blocks = (columns + 127) / 128;
    const bool is_fp8 = shape_.format == DType::kF8E4M3;
    const auto quantized = reference::quantize_1x128(from.x, from.tokens, columns);
    const auto* bytes =
        is_fp8 ? quantized.q.data() : reinterpret_cast<const uint8_t*>(from.x.data());
    const int64_t row_bytes = is_fp8 ? columns : 2 * columns;
    int64_t wrong = 0;
    for (int64_t token = 0; token < from.tokens; ++token) {
      if (!has_expert(from, token, rank)) continue;
      const int64_t slot = source * int64_t{shape_.max_tokens} + token;
      wrong += !std::equal(bytes + token * row_bytes, bytes + (token + 1) * row_bytes,
                           slots.begin() + slot * row_bytes);
      if (is_fp8)
        wrong += !std::equal(quantized.scale_inv.begin() + token * blocks,
                             quantized.scale_inv.begin() + (token + 1) * blocks,
                             scales.begin() + slot * blocks);
    }
    EXPECT_EQ(wrong, 0) << "rows of rank " << source << " at rank " << rank;
  }

  // Runs epochs of exchanges, each rank with a number of tokens of its own, now and then none.
  void run_epochs(const compiler::Exchange& shape, uint64_t seed, int32_t epochs = 3) {
    open(shape, seed);
    if (IsSkipped() || HasFatalFailure()) return;
    const RandomStream random(seed, 3);
    for (int32_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<RankTokens> inputs;
      for (int32_t rank = 0; rank < shape.ranks; ++rank) {
        const auto draw = static_cast<uint64_t>(epoch * shape.ranks + rank);
        const int64_t tokens = random.below(2 * draw, 4) == 0
                                   ? random.below(2 * draw + 1, 2) * shape.max_tokens
                                   : random.below(2 * draw + 1, shape.max_tokens + 1);
        inputs.push_back(random_rank(shape, tokens, seed * 100 + draw));
      }
      dispatch(inputs);
      expect_arrived(inputs);
      if (HasFailure()) return;
    }
    for (const auto& rank : each_) {
      EXPECT_EQ(rank->get<uint32_t>("group_status"), std::vector<uint32_t>{0});
      EXPECT_EQ(rank->get<uint32_t>("epoch"), std::vector<uint32_t>{static_cast<uint32_t>(epochs)});
    }
  }

  compiler::Exchange shape_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::unique_ptr<ExchangedRank>> each_;
};

TEST_F(Exchanges, QuantizeRowsOnTheWay) { run_epochs(small(), 1); }

TEST_F(Exchanges, MoveBf16Rows) {
  compiler::Exchange shape = small();
  shape.format = DType::kBF16;
  run_epochs(shape, 2);
}

TEST_F(Exchanges, TakeManyChoicesAndWideIds) {
  compiler::Exchange shape = small();
  shape.experts = 64;
  shape.top_k = 9;
  shape.max_tokens = 7;
  shape.topk_ids = DType::kI64;
  run_epochs(shape, 4);
}

TEST_F(Exchanges, TakeTwoSms) {
  compiler::Exchange shape = small();
  shape.sms = 2;
  run_epochs(shape, 15);
}

TEST_F(Exchanges, TakeOneToken) {
  compiler::Exchange shape = small();
  shape.top_k = 1;
  shape.max_tokens = 1;
  shape.columns = 16;
  run_epochs(shape, 5);
}

TEST_F(Exchanges, TakeChunksOfSeveralTokens) {
  compiler::Exchange shape = small();
  shape.top_k = 1;
  shape.max_tokens = 2100;
  shape.columns = 16;
  run_epochs(shape, 6, 1);
}

class ManyRanks : public Exchanges, public ::testing::WithParamInterface<int64_t> {};

TEST_P(ManyRanks, ExchangeRows) {
  if (tested_target() != "sim") GTEST_SKIP() << "two GPUs are what there is";
  compiler::Exchange shape = small();
  shape.ranks = GetParam();
  shape.experts = 16;
  shape.top_k = 4;
  shape.max_tokens = 10;
  shape.columns = 144;
  for (uint64_t seed = 10; seed < 14; ++seed) {
    run_epochs(shape, seed, 2);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ManyRanks, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace moejit::testing
