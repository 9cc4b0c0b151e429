// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "tests/gpu/exchanged_rank.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {

// What one rank has in one epoch.
struct RankInputs {
  int64_t tokens = 0;
  std::vector<uint16_t> x;         // [T, H]
  std::vector<int32_t> ids;        // [T, K]
  std::vector<float> probs;        // [T, K]
  std::vector<uint16_t> h2;        // [P, H], what its experts make
  std::vector<float> slot_dprobs;  // [S, K]
};

// What comes to a rank: the choices of all ranks' tokens, those of its experts, and their rows.
struct Arrived {
  std::vector<int32_t> ids;  // [S, K]
  std::vector<float> probs;  // [S, K]
  std::vector<uint16_t> x;   // [S, H]
  reference::Route route;
};

// Exchanges of random rows, epoch after epoch, and what they have to give.
class PermutedExchanges : public ::testing::Test {
 protected:
  using DType = compiler::DType;
  using Exchange = compiler::Exchange;
  using ExchangeStep = compiler::ExchangeStep;
  static constexpr int64_t kAlignment = 16;

  // Returns the shape of most tests.
  static Exchange small() {
    Exchange shape{.experts = 8, .top_k = 2, .max_tokens = 24, .columns = 272, .epsilon = 1e-10f};
    return with_rows(shape);
  }
  static Exchange with_rows(Exchange shape) {
    shape.max_permuted_rows = shape.ranks * shape.max_tokens * shape.top_k + shape.experts * 16;
    shape.splits_alignment = kAlignment;
    return shape;
  }

  void open(const Exchange& shape, uint64_t seed) {
    shape_ = shape;
    each_.clear();
    ranks_.reset();  // a group takes the stacks of all threads of its SMs
    std::string why_not;
    ranks_ = Ranks::open(static_cast<int32_t>(shape.ranks), ExchangedRank::heap_bytes(shape), seed,
                         why_not);
    if (ranks_ == nullptr && !why_not.empty()) GTEST_SKIP() << why_not;
    ASSERT_NE(ranks_, nullptr);
    for (int32_t rank = 0; rank < shape.ranks; ++rank) {
      Exchange own = shape;
      own.rank = rank;
      each_.push_back(std::make_unique<ExchangedRank>(*ranks_, own));
    }
  }

  RankInputs random_rank(int64_t tokens, uint64_t seed) const {
    const reference::RandomStream random(seed, 9);
    RankInputs rank{.tokens = tokens,
                    .x = reference::random_activations(tokens, shape_.columns, seed),
                    .ids = reference::random_routing(tokens, shape_.experts, shape_.top_k, {seed}),
                    .probs = reference::random_probs(tokens, shape_.top_k, seed),
                    .h2 = rows_that_tell_order(seed + 1),
                    .slot_dprobs = {}};
    for (int64_t i = 0; i < slots() * shape_.top_k; ++i)
      rank.slot_dprobs.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
    return rank;
  }

  // Returns rows [P, H] of which a third is 2^24, a third -2^24: a sum of both and a small value
  // tells the order in which it was made.
  std::vector<uint16_t> rows_that_tell_order(uint64_t seed) const {
    const reference::RandomStream random(seed, 10);
    auto rows = reference::random_activations(shape_.max_permuted_rows, shape_.columns, seed);
    for (int64_t row = 0; row < shape_.max_permuted_rows; ++row) {
      const int64_t kind = random.below(static_cast<uint64_t>(row), 3);
      if (kind == 2) continue;
      const uint16_t value = reference::bf16_from_float(kind == 0 ? 0x1p24f : -0x1p24f);
      std::fill_n(rows.begin() + row * shape_.columns, shape_.columns, value);
    }
    return rows;
  }

  int64_t slots() const { return shape_.ranks * shape_.max_tokens; }
  int32_t rank_experts() const { return static_cast<int32_t>(shape_.experts / shape_.ranks); }

  // Returns what comes to a rank, of all that the ranks have.
  Arrived arrived(const std::vector<RankInputs>& inputs, int32_t rank) const {
    const auto choices = static_cast<size_t>(slots() * shape_.top_k);
    Arrived all{.ids = std::vector<int32_t>(choices, -1),
                .probs = std::vector<float>(choices),
                .x = std::vector<uint16_t>(static_cast<size_t>(slots() * shape_.columns)),
                .route = {}};
    for (int64_t source = 0; source < shape_.ranks; ++source) {
      const RankInputs& from = inputs[static_cast<size_t>(source)];
      std::ranges::copy(from.x, all.x.begin() + source * shape_.max_tokens * shape_.columns);
      for (size_t i = 0; i < from.ids.size(); ++i) {
        const auto at = static_cast<size_t>(source * shape_.max_tokens * shape_.top_k) + i;
        if (from.ids[i] < 0 || from.ids[i] / rank_experts() != rank) continue;
        all.ids[at] = from.ids[i] - rank * rank_experts();
        all.probs[at] = from.probs[i];
      }
    }
    all.route = reference::route(std::span<const int32_t>(all.ids), slots(),
                                 {.experts = rank_experts(),
                                  .top_k = shape_.top_k,
                                  .hidden = shape_.columns,
                                  .alignment = kAlignment,
                                  .max_rows = shape_.max_permuted_rows});
    return all;
  }

  void dispatch(const std::vector<RankInputs>& inputs) {
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      ExchangedRank& rank = *each_[static_cast<size_t>(r)];
      const RankInputs& own = inputs[static_cast<size_t>(r)];
      rank.set("input", own.x);
      rank.set("topk_ids", own.ids);
      rank.set("topk_probs", own.probs);
      if (joins_route_) {
        rank.run(ExchangeStep::kRouteDispatchPermute, own.tokens);
        continue;
      }
      const reference::Route route = arrived(inputs, r).route;
      rank.set("row_map", route.row_map);
      rank.set("counts", route.counts);
      rank.set("offs", route.offs);
      rank.run(ExchangeStep::kChoices, own.tokens);
      rank.run(ExchangeStep::kDispatchPermute, own.tokens);
    }
    ASSERT_TRUE(succeeded(ranks_->synchronize()));
  }

  void expect_permuted(const std::vector<RankInputs>& inputs) {
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      ExchangedRank& rank = *each_[static_cast<size_t>(r)];
      const Arrived all = arrived(inputs, r);
      const std::span<const float> probs =
          shape_.moves_probs ? std::span<const float>(all.probs) : std::span<const float>();
      if (shape_.format == DType::kBF16) {
        expect_begin(
            rank.get<uint16_t>("permuted"),
            reference::permute_pad_bf16(all.x, shape_.columns, probs, all.route, shape_.top_k),
            "rows", r);
      } else {
        const auto x = reference::quantize_1x128(all.x, slots(), shape_.columns);
        const auto rows = shape_.moves_probs
                              ? reference::permute_pad(x, probs, all.route, shape_.top_k).data
                              : reference::permute_pad(x, all.route, shape_.top_k);
        expect_begin(rank.get<uint8_t>("permuted"), rows.q, "rows", r);
        expect_begin(rank.get<float>("permuted_scale_inv"), rows.scale_inv, "scales", r);
        if (shape_.moves_probs)
          expect_begin(rank.get<float>("permuted_probs"),
                       reference::permute_pad(x, probs, all.route, shape_.top_k).probs,
                       "probabilities", r);
      }
      if (joins_route_) expect_route(all, r);
      if (shape_.tells_tokens) expect_tokens(all, rank.get<int32_t>("row_tokens"), r);
      if (shape_.keeps_rows) expect_kept(all, r);
      EXPECT_EQ(rank.get<int64_t>("saved_tokens"),
                std::vector<int64_t>{inputs[static_cast<size_t>(r)].tokens});
    }
  }

  void expect_route(const Arrived& all, int32_t r) {
    ExchangedRank& rank = *each_[static_cast<size_t>(r)];
    EXPECT_EQ(rank.get<int32_t>("slot_ids"), all.ids) << "rank " << r;
    EXPECT_EQ(rank.get<float>("slot_probs"), all.probs) << "rank " << r;
    EXPECT_EQ(rank.get<int32_t>("row_map"), all.route.row_map) << "rank " << r;
    EXPECT_EQ(rank.get<int32_t>("counts"), all.route.counts) << "rank " << r;
    EXPECT_EQ(rank.get<int32_t>("offs"), all.route.offs) << "rank " << r;
  }

  // Rows that experts of the rank want are kept at their slots.
  void expect_kept(const Arrived& all, int32_t r) {
    ExchangedRank& rank = *each_[static_cast<size_t>(r)];
    const bool is_fp8 = shape_.format != DType::kBF16;
    const auto quantized = reference::quantize_1x128(all.x, slots(), shape_.columns);
    const auto kept = rank.get<uint8_t>("kept_rows");
    const auto scales = is_fp8 ? rank.get<float>("kept_rows_scale_inv") : std::vector<float>();
    const auto* const wanted =
        is_fp8 ? quantized.q.data() : reinterpret_cast<const uint8_t*>(all.x.data());
    const int64_t bytes = shape_.columns * (is_fp8 ? 1 : 2), blocks = (shape_.columns + 127) / 128;
    int64_t wrong = 0;
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const auto first = all.ids.begin() + slot * shape_.top_k;
      if (std::all_of(first, first + shape_.top_k, [](int32_t id) { return id < 0; })) continue;
      wrong += !std::equal(wanted + slot * bytes, wanted + (slot + 1) * bytes,
                           kept.begin() + slot * bytes);
      if (is_fp8)
        wrong += !std::equal(quantized.scale_inv.begin() + slot * blocks,
                             quantized.scale_inv.begin() + (slot + 1) * blocks,
                             scales.begin() + slot * blocks);
    }
    EXPECT_EQ(wrong, 0) << "kept rows of rank " << r;
  }

  template <typename T>
  static void expect_begin(const std::vector<T>& got, const std::vector<T>& wanted,
                           const char* what, int32_t rank) {
    ASSERT_GE(got.size(), wanted.size());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin()))
        << what << " of rank " << rank;
  }

  void expect_tokens(const Arrived& all, const std::vector<int32_t>& row_tokens, int32_t rank) {
    int64_t wrong = 0;
    for (size_t i = 0; i < all.route.row_map.size(); ++i) {
      const int32_t row = all.route.row_map[i];
      const auto slot = static_cast<int32_t>(i / static_cast<size_t>(shape_.top_k));
      if (row >= 0)
        wrong += row_tokens[static_cast<size_t>(row)] != (all.probs[i] == 0.0f ? ~slot : slot);
    }
    EXPECT_EQ(wrong, 0) << "tokens of the rows of rank " << rank;
  }

  void combine(const std::vector<RankInputs>& inputs) {
    for (size_t r = 0; r < each_.size(); ++r) {
      each_[r]->set("expert_rows", inputs[r].h2);
      if (shape_.has_dprobs) each_[r]->set("slot_dprobs", inputs[r].slot_dprobs);
      each_[r]->run(ExchangeStep::kCombineRows, inputs[r].tokens);
    }
    ASSERT_TRUE(succeeded(ranks_->synchronize()));
  }

  // y is the sum of the ranks' sums in ascending order, from 0 in fp32, rounded once; a rank
  // without rows of a token does not take part.
  void expect_combined(const std::vector<RankInputs>& inputs) {
    std::vector<Arrived> at;
    std::vector<std::vector<uint16_t>> sums;  // [S, H] of each rank
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      at.push_back(arrived(inputs, r));
      sums.push_back(reference::unpermute(inputs[static_cast<size_t>(r)].h2,
                                          at.back().route.row_map, slots(), shape_.top_k,
                                          shape_.columns));
    }
    for (int64_t home = 0; home < shape_.ranks; ++home) {
      const auto output = each_[static_cast<size_t>(home)]->get<uint16_t>("output");
      int64_t wrong = 0;
      for (int64_t token = 0; token < inputs[static_cast<size_t>(home)].tokens; ++token)
        for (int64_t column = 0; column < shape_.columns; ++column) {
          const int64_t slot = home * shape_.max_tokens + token;
          float sum = 0.0f;
          for (size_t r = 0; r < at.size(); ++r) {
            const auto first = at[r].ids.begin() + slot * shape_.top_k;
            if (std::any_of(first, first + shape_.top_k, [](int32_t id) { return id >= 0; }))
              sum += reference::float_from_bf16(
                  sums[r][static_cast<size_t>(slot * shape_.columns + column)]);
          }
          wrong += output[static_cast<size_t>(token * shape_.columns + column)] !=
                   reference::bf16_from_float(sum);
        }
      EXPECT_EQ(wrong, 0) << "results of rank " << home;
      if (shape_.has_dprobs) expect_dprobs(inputs, home);
    }
  }

  void expect_dprobs(const std::vector<RankInputs>& inputs, int64_t home) {
    const RankInputs& own = inputs[static_cast<size_t>(home)];
    const auto dprobs = each_[static_cast<size_t>(home)]->get<float>("dprobs");
    int64_t wrong = 0;
    for (size_t choice = 0; choice < own.ids.size(); ++choice) {
      const int32_t id = own.ids[choice];
      const auto slots = static_cast<size_t>(home * shape_.max_tokens * shape_.top_k);
      const float wanted =
          id < 0 ? 0.0f
                 : inputs[static_cast<size_t>(id / rank_experts())].slot_dprobs[slots + choice];
      wrong += dprobs[choice] != wanted;
    }
    EXPECT_EQ(wrong, 0) << "gradients of the probabilities of rank " << home;
  }

  // Runs epochs of exchanges, each rank with a number of tokens of its own, now and then none. The
  // routing is known before rows are sent, or found in the same kernel.
  void run_epochs(const Exchange& shape, uint64_t seed, int32_t epochs = 3) {
    for (const bool joins_route : {false, true}) {
      joins_route_ = joins_route;
      run_epochs_in_one_way(shape, seed, epochs);
      if (IsSkipped() || HasFailure()) return;
    }
  }
  void run_epochs_in_one_way(const Exchange& shape, uint64_t seed, int32_t epochs) {
    open(shape, seed);
    if (IsSkipped() || HasFatalFailure()) return;
    const reference::RandomStream random(seed, 3);
    for (int32_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<RankInputs> inputs;
      for (int32_t rank = 0; rank < shape.ranks; ++rank) {
        const auto draw = static_cast<uint64_t>(epoch * shape.ranks + rank);
        const int64_t tokens = random.below(2 * draw, 4) == 0
                                   ? random.below(2 * draw + 1, 2) * shape.max_tokens
                                   : random.below(2 * draw + 1, shape.max_tokens + 1);
        inputs.push_back(random_rank(tokens, seed * 100 + draw));
      }
      dispatch(inputs);
      expect_permuted(inputs);
      combine(inputs);
      expect_combined(inputs);
      if (HasFailure()) return;
    }
    for (const auto& rank : each_) {
      EXPECT_EQ(rank->get<uint32_t>("group_status"), std::vector<uint32_t>{0});
      EXPECT_EQ(rank->get<uint32_t>("epoch"), std::vector<uint32_t>{static_cast<uint32_t>(epochs)});
    }
  }

  Exchange shape_;
  bool joins_route_ = false;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::unique_ptr<ExchangedRank>> each_;
};

}  // namespace moejit::testing
