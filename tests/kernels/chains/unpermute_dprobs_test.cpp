// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "templates/moejit_device/params/unpermute_dprobs_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/special_values.h"
#include "tests/support/layer_inputs.h"

#include <cmath>

namespace moejit::testing {
namespace {

constexpr int64_t kGuard = 64;  // elements behind an output that belong to somebody else

// Gradients from 2^-20 to 2^20 of either sign: sums in another order have other bits.
std::vector<float> random_blocks(int64_t count, uint64_t seed) {
  const reference::RandomStream stream(seed, 77);
  std::vector<float> blocks(static_cast<size_t>(count));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto exponent = static_cast<int>(stream.below(2 * i, 41)) - 20;
    blocks[i] = std::ldexp(static_cast<float>(stream.normal(2 * i + 1)), exponent);
  }
  return blocks;
}

class UnpermuteDprobsKernel : public Chains {
 protected:
  void expect_equal(const reference::LayerShape& layer, int64_t tokens, int32_t columns,
                    int64_t ctas, uint64_t seed) {
    reference::LayerShape shape = layer;
    shape.max_rows = reference::enough_rows(tokens, shape);
    auto ids = reference::random_routing(tokens, shape.experts, shape.top_k, {seed},
                                         {.unrouted_share = 0.25, .may_repeat = true});
    // Every fourth token has no expert here.
    for (int64_t i = 0; i < tokens * shape.top_k; ++i)
      if (i / shape.top_k % 4 == 3) ids[static_cast<size_t>(i)] = -1;
    const auto route = reference::route(ids, tokens, shape);
    expect_sums(reference::random_activations(shape.max_rows, shape.hidden, seed),
                random_blocks(shape.max_rows * columns, seed), route.row_map, tokens, shape,
                columns, ctas);
  }

  void expect_sums(const std::vector<uint16_t>& rows, const std::vector<float>& blocks,
                   const std::vector<int32_t>& map, int64_t tokens,
                   const reference::LayerShape& shape, int32_t columns, int64_t ctas) {
    const auto wanted = reference::unpermute(rows, map, tokens, shape.top_k, shape.hidden);
    const auto wanted_dprobs = reference::unpermute_dprobs(blocks, map, columns);
    const int64_t choices = tokens * shape.top_k;
    const DeviceBuffer gradient = input("gradient", rows);
    const DeviceBuffer dprobs_blocks = input("dprobs_blocks", blocks);
    const DeviceBuffer row_map = input("row_map", map);
    const DeviceBuffer dx = output<uint16_t>("dx", tokens * shape.hidden + kGuard);
    const DeviceBuffer dprobs = has_bf16_probs_ ? output<uint16_t>("dprobs", choices + kGuard)
                                                : output<float>("dprobs", choices + kGuard);
    const device::RowChainParams params{.input = gradient.as<const void>(),
                                        .row_map = row_map.as<const int32_t>(),
                                        .output = dx.as<void>(),
                                        .rows = tokens,
                                        .dprobs_blocks = dprobs_blocks.as<const float>(),
                                        .dprobs = dprobs.as<void>()};
    const compiler::RowChainSpec spec{
        .load = compiler::LoadStage::kCombinedRows,
        .quantize = compiler::QuantizeStage::kNone,
        .store = compiler::StoreStage::kRowsAndProbs,
        .columns = static_cast<int32_t>(shape.hidden),
        .top_k = static_cast<int32_t>(shape.top_k),
        .threads = 128,
        .dprobs_columns = columns,
        .probs = has_bf16_probs_ ? compiler::DType::kBF16 : compiler::DType::kF32};
    run(spec, ctas, params, {&gradient, &dprobs_blocks, &row_map, &dx, &dprobs});
    const auto got = dx.download<uint16_t>();
    EXPECT_TRUE(
        matches(compare_bf16({"dx", shape.hidden}, head(got, tokens * shape.hidden), wanted)));
    EXPECT_TRUE(untouched_from(got, tokens * shape.hidden));
    if (!has_bf16_probs_) {
      const auto got_dprobs = dprobs.download<float>();
      EXPECT_TRUE(
          matches(compare_f32({"dprobs", shape.top_k}, head(got_dprobs, choices), wanted_dprobs)));
      EXPECT_TRUE(untouched_from(got_dprobs, choices));
      return;
    }
    const auto got_dprobs = dprobs.download<uint16_t>();
    std::vector<uint16_t> rounded;
    for (const float dprob : wanted_dprobs) rounded.push_back(reference::bf16_from_float(dprob));
    EXPECT_TRUE(matches(compare_bf16({"dprobs", shape.top_k}, head(got_dprobs, choices), rounded)));
    EXPECT_TRUE(untouched_from(got_dprobs, choices));
    expect_sums_alone(dprobs_blocks, row_map, wanted_dprobs, tokens, shape, columns, ctas);
  }

  // By the kernel that reads no rows.
  void expect_sums_alone(const DeviceBuffer& dprobs_blocks, const DeviceBuffer& row_map,
                         const std::vector<float>& wanted, int64_t tokens,
                         const reference::LayerShape& shape, int32_t columns, int64_t ctas) {
    const int64_t choices = tokens * shape.top_k;
    const DeviceBuffer dprobs = output<float>("dprobs", choices + kGuard);
    const device::UnpermuteDprobsParams params{.row_map = row_map.as<const int32_t>(),
                                               .dprobs_blocks = dprobs_blocks.as<const float>(),
                                               .dprobs = dprobs.as<float>(),
                                               .rows = tokens};
    const compiler::UnpermuteDprobsSpec spec{.top_k = static_cast<int32_t>(shape.top_k),
                                             .dprobs_columns = columns};
    run(spec, ctas, params, {&dprobs_blocks, &row_map, &dprobs});
    const auto got = dprobs.download<float>();
    EXPECT_TRUE(matches(compare_f32({"dprobs", shape.top_k}, head(got, choices), wanted)));
    EXPECT_TRUE(untouched_from(got, choices));
  }

  void expect_special_values_kept() {
    const reference::LayerShape shape{.top_k = 2, .hidden = 272};
    std::vector<float> blocks = random_blocks(32 * 4, 1);
    const float special[] = {NAN, kInf, -kInf, -0.0F, 0x1p-149F, 0x1.fffffep127F, 0.0F, 1.0F};
    for (size_t i = 0; i < 64; ++i) blocks[i] = special[i / 8 == i % 8 ? 7 : i % 8];
    for (size_t i = 64; i < 72; ++i) blocks[i] = -0.0F;  // from +0, so +0
    std::vector<int32_t> map;
    for (int32_t i = 0; i < 32; ++i) map.push_back(i % 5 == 0 ? -1 : (i * 7) % 32);
    expect_sums(reference::special_activations(32, 272, 1), blocks, map, 16, shape, 4, 2);
  }

  bool has_bf16_probs_ = false;
};

TEST_F(UnpermuteDprobsKernel, AddsBlocksInAscendingOrderForAnyNumberOfThem) {
  for (const int32_t columns : {1, 2, 3, 4, 6, 8, 13, 16, 20}) {
    SCOPED_TRACE(columns);
    expect_equal({.experts = 7, .top_k = 8, .hidden = 144, .alignment = 16}, 21, columns, 2, 1);
  }
}

TEST_F(UnpermuteDprobsKernel, TakesAnyTopK) {
  for (const int64_t top_k : {1, 3, 8, 33}) {
    SCOPED_TRACE(top_k);
    expect_equal({.experts = 40, .top_k = top_k, .hidden = 272, .alignment = 1}, 37, 16, 3, 2);
  }
}

TEST_F(UnpermuteDprobsKernel, GivesTheSameForAnyNumberOfCtasAndOrderOfThreads) {
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 4, 64}) {
    open(seed++);
    expect_equal({.experts = 7, .top_k = 8, .hidden = 144, .alignment = 16}, 130, 16, ctas, 3);
  }
}

TEST_F(UnpermuteDprobsKernel, KeepsSpecialValues) { expect_special_values_kept(); }

TEST_F(UnpermuteDprobsKernel, RoundsSumsToBf16Once) {
  has_bf16_probs_ = true;
  for (const int32_t columns : {1, 4, 13})
    expect_equal({.experts = 7, .top_k = 8, .hidden = 144, .alignment = 16}, 21, columns, 2, 1);
  expect_special_values_kept();
  // 1 + 2^-8 lies between two bf16 numbers and goes to the even one; a little more goes up.
  const std::vector<float> blocks = {1.0F, 0x1p-8F, 1.0F, 0x1p-8F + 0x1p-20F};
  expect_sums(std::vector<uint16_t>(2 * 16), blocks, {0, 1}, 1, {.top_k = 2, .hidden = 16}, 2, 1);
}

TEST_F(UnpermuteDprobsKernel, TakesNoTokens) {
  expect_sums(std::vector<uint16_t>(272), std::vector<float>(4), {}, 0, {.top_k = 2, .hidden = 272},
              4, 2);
}

}  // namespace
}  // namespace moejit::testing
