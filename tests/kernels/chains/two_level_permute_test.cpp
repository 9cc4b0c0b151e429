// SPDX-License-Identifier: Apache-2.0
// Rows of E2M1 codes with their scales, permuted and padded in one launch: every byte that is
// written, against copies of bytes.
#include "compiler/kernels/row_chain.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <algorithm>

namespace moejit::testing {
namespace {

using compiler::RowChainSpec;

std::vector<uint8_t> random_bytes(int64_t count, uint64_t seed) {
  const reference::RandomStream random(seed, 1);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(random.below(i, 256));
  return bytes;
}

class TwoLevelPermuteKernel : public Chains {
 protected:
  struct Choice {
    bool moves_probs = true;
    bool tells_tokens = false;
    bool has_bf16_probs = false;
    int32_t rows_per_burst = 0;
    int64_t ctas = 3;
  };

  // Experts of tokens, [T, top_k], or -1.
  struct Tokens {
    std::vector<int32_t> ids;
    int64_t top_k = 1;
    int64_t count() const { return std::ssize(ids) / top_k; }
  };

  // What a permuted row gets. Of rows behind the last group everything stays as it was.
  struct Wanted {
    std::vector<uint8_t> codes, scales;
    std::vector<float> probs;
    std::vector<int32_t> tokens;  // of real rows; pad rows' are not written
  };
  static Wanted wanted_of(const reference::Route& route, int64_t top_k, int64_t max_rows,
                          std::span<const uint8_t> codes, std::span<const uint8_t> scales,
                          std::span<const float> probs, int64_t columns) {
    const int64_t code_bytes = columns / 2, scale_bytes = 8 * ((columns + 127) / 128);
    const int64_t rows = route.rows();
    Wanted wanted;
    wanted.codes.resize(static_cast<size_t>(rows * code_bytes));
    wanted.scales.resize(static_cast<size_t>(rows * scale_bytes));
    wanted.codes.resize(static_cast<size_t>(max_rows * code_bytes), kUntouched);
    wanted.scales.resize(static_cast<size_t>(max_rows * scale_bytes), kUntouched);
    wanted.probs.resize(static_cast<size_t>(rows));
    wanted.tokens.resize(static_cast<size_t>(rows), static_cast<int32_t>(0xcdcdcdcd));
    for (int64_t i = 0; i < std::ssize(route.row_map); ++i) {
      const int64_t token = i / top_k, row = route.row_map[static_cast<size_t>(i)];
      if (row < 0) continue;
      const float prob = probs.empty() ? 1.0f : probs[static_cast<size_t>(i)];
      if (prob != 0.0f)
        std::copy_n(codes.begin() + token * code_bytes, code_bytes,
                    wanted.codes.begin() + row * code_bytes);
      std::copy_n(scales.begin() + token * scale_bytes, scale_bytes,
                  wanted.scales.begin() + row * scale_bytes);
      wanted.probs[static_cast<size_t>(row)] = prob;
      const auto number = static_cast<int32_t>(token);
      wanted.tokens[static_cast<size_t>(row)] = prob == 0.0f ? -1 - number : number;
    }
    return wanted;
  }

  static RowChainSpec spec_of(int64_t columns, int64_t experts, int64_t top_k,
                              const Choice& choice) {
    return {.load = compiler::LoadStage::kTwoLevelRows,
            .quantize = compiler::QuantizeStage::kKeep,
            .store = compiler::StoreStage::kPermuted,
            .columns = static_cast<int32_t>(columns),
            .local_experts = static_cast<int32_t>(experts),
            .top_k = static_cast<int32_t>(top_k),
            .moves_probs = choice.moves_probs,
            .tells_tokens = choice.tells_tokens,
            .segments_in_flight = 2,
            .rows_per_burst = choice.rows_per_burst,
            .probs = choice.has_bf16_probs ? compiler::DType::kBF16 : compiler::DType::kF32};
  }

  void expect_equal(const Tokens& tokens, int64_t experts, int64_t alignment, int64_t columns,
                    const Choice& choice) {
    SCOPED_TRACE(columns);
    const int64_t code_bytes = columns / 2, scale_bytes = 8 * ((columns + 127) / 128);
    reference::LayerShape shape{.experts = experts, .top_k = tokens.top_k, .alignment = alignment};
    shape.max_rows = reference::enough_rows(tokens.count(), shape);
    const auto route = reference::route(std::span(tokens.ids), tokens.count(), shape);
    const std::vector<uint8_t> given_codes = random_bytes(tokens.count() * code_bytes, 2);
    const std::vector<uint8_t> given_scales = random_bytes(tokens.count() * scale_bytes, 3);
    std::vector<float> given_probs = reference::random_probs(tokens.count(), tokens.top_k, 5);
    for (size_t i = 0; i < given_probs.size(); i += 5) given_probs[i] = 0.0f;
    std::vector<uint16_t> bf16_probs;
    for (float& prob : given_probs) {
      bf16_probs.push_back(reference::bf16_from_float(prob));
      if (choice.has_bf16_probs) prob = reference::float_from_bf16(bf16_probs.back());
    }
    const Wanted wanted = wanted_of(
        route, tokens.top_k, shape.max_rows, given_codes, given_scales,
        choice.moves_probs ? std::span<const float>(given_probs) : std::span<const float>(),
        columns);

    const DeviceBuffer codes = input("codes", given_codes), scales = input("scales", given_scales);
    const DeviceBuffer probs =
        choice.has_bf16_probs ? input("probs", bf16_probs) : input("probs", given_probs);
    const DeviceBuffer row_map = input("row_map", route.row_map);
    const DeviceBuffer counts = input("counts", route.counts), offs = input("offs", route.offs);
    const DeviceBuffer out_codes = output<uint8_t>("out_codes", shape.max_rows * code_bytes);
    const DeviceBuffer out_scales = output<uint8_t>("out_scales", shape.max_rows * scale_bytes);
    const DeviceBuffer out_probs = output<float>("out_probs", shape.max_rows);
    const DeviceBuffer row_tokens = output<int32_t>("row_tokens", shape.max_rows);
    const device::RowChainParams params{.input = codes.as<const void>(),
                                        .input_scale_inv = scales.as<const float>(),
                                        .probs = probs.as<const void>(),
                                        .row_map = row_map.as<const int32_t>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = out_codes.as<void>(),
                                        .output_scale_inv = out_scales.as<float>(),
                                        .output_probs = out_probs.as<float>(),
                                        .row_tokens = row_tokens.as<int32_t>(),
                                        .rows = tokens.count()};
    run(spec_of(columns, experts, tokens.top_k, choice), choice.ctas, params,
        {&codes, &scales, &probs, &row_map, &counts, &offs, &out_codes, &out_scales, &out_probs,
         &row_tokens});
    EXPECT_TRUE(
        matches(compare_bytes({"codes", code_bytes}, out_codes.download<uint8_t>(), wanted.codes)));
    EXPECT_TRUE(matches(
        compare_bytes({"scales", scale_bytes}, out_scales.download<uint8_t>(), wanted.scales)));
    const auto got_probs = out_probs.download<float>();
    const int64_t moved = choice.moves_probs ? route.rows() : 0;
    EXPECT_TRUE(matches(compare_f32({"probs"}, head(got_probs, moved), head(wanted.probs, moved))));
    EXPECT_TRUE(untouched_from(got_probs, moved));
    const auto got_tokens = row_tokens.download<int32_t>();
    const int64_t told = choice.tells_tokens ? route.rows() : 0;
    EXPECT_TRUE(
        matches(compare_i32({"tokens"}, head(got_tokens, told), head(wanted.tokens, told))));
    EXPECT_TRUE(untouched_from(got_tokens, told));
  }

  // Tokens with one expert each, as many as a group has rows, dealt out by turns; every ninth
  // token has none.
  static Tokens tokens_of(std::vector<int32_t> counts) {
    Tokens tokens;
    for (bool is_left = true; is_left;) {
      is_left = false;
      for (size_t expert = 0; expert < counts.size(); ++expert) {
        if (counts[expert] == 0) continue;
        is_left = true;
        --counts[expert];
        tokens.ids.push_back(static_cast<int32_t>(expert));
        if (tokens.ids.size() % 9 == 0) tokens.ids.push_back(-1);
      }
    }
    return tokens;
  }
  static Tokens random_tokens(int64_t count, int64_t experts, int64_t top_k, uint64_t seed) {
    const auto ids = reference::random_routing(count, experts, top_k, {seed},
                                               {.unrouted_share = 0.2, .may_repeat = true});
    return {{ids.begin(), ids.end()}, top_k};
  }
};

// Rows of 1448 bytes are at multiples of 8 bytes alone, and rows of 184 bytes of scales are too.
TEST_F(TwoLevelPermuteKernel, MovesCodesAndScalesToGroupsOfAnySize) {
  const std::vector<int32_t> counts{0, 1, 15, 16, 0, 17, 127, 128, 129, 0};
  for (const int64_t alignment : {16, 128})
    for (const int64_t columns : {16, 144, 2880, 2896}) {
      SCOPED_TRACE(alignment);
      expect_equal(tokens_of(counts), std::ssize(counts), alignment, columns, {.ctas = 7});
    }
}

TEST_F(TwoLevelPermuteKernel, WritesNothingWithoutTokens) {
  expect_equal({.ids = {}, .top_k = 2}, 4, 16, 272, {});
}

TEST_F(TwoLevelPermuteKernel, WritesNothingWhereNoTokenHasAnExpert) {
  expect_equal({.ids = std::vector<int32_t>(24, -1), .top_k = 3}, 4, 128, 272, {});
}

TEST_F(TwoLevelPermuteKernel, GivesTheSameForAnyNumberOfCtasAndOrderOfThreads) {
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 3, 60}) {
    open(seed);
    expect_equal(random_tokens(37, 7, 3, seed++), 7, 16, 400, {.ctas = ctas});
  }
}

TEST_F(TwoLevelPermuteKernel, TakesMoreDestinationsThanASegmentHasLanes) {
  expect_equal(random_tokens(20, 12, 12, 1), 12, 8, 144, {.tells_tokens = true});
  expect_equal(random_tokens(9, 160, 40, 2), 160, 1, 48, {});
}

TEST_F(TwoLevelPermuteKernel, TellsTokensAndMovesProbabilitiesOrLeavesThem) {
  for (const bool moves_probs : {true, false})
    for (const bool tells_tokens : {true, false})
      for (const bool has_bf16_probs : {true, false}) {
        if (!moves_probs && (tells_tokens || has_bf16_probs)) continue;
        expect_equal(random_tokens(37, 5, 4, 3), 5, 128, 144,
                     {.moves_probs = moves_probs,
                      .tells_tokens = tells_tokens,
                      .has_bf16_probs = has_bf16_probs});
      }
}

// The last burst is not whole, and behind the last row there is nothing.
TEST_F(TwoLevelPermuteKernel, AsksL2ForRowsThatExist) {
  for (const auto& [columns, rows] : {std::pair{32, 64}, {544, 32}})
    expect_equal(random_tokens(71, 7, 3, 4), 7, 16, columns, {.rows_per_burst = rows, .ctas = 20});
}

}  // namespace
}  // namespace moejit::testing
