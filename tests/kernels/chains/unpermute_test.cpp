// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/layer_inputs.h"

namespace moejit::testing {
namespace {

class UnpermuteKernel : public Chains {
 protected:
  void expect_equal(const reference::LayerShape& layer, int64_t tokens, int64_t ctas,
                    uint64_t seed) {
    reference::LayerShape shape = layer;
    shape.max_rows = reference::enough_rows(tokens, shape);
    const auto ids = reference::random_routing(tokens, shape.experts, shape.top_k, {seed},
                                               {.unrouted_share = 0.25, .may_repeat = true});
    const auto route = reference::route(ids, tokens, shape);
    expect_sum(reference::random_activations(shape.max_rows, shape.hidden, seed), route.row_map,
               tokens, shape, ctas);
  }

  void expect_sum(const std::vector<uint16_t>& rows, const std::vector<int32_t>& map,
                  int64_t tokens, const reference::LayerShape& shape, int64_t ctas) {
    const auto wanted = reference::unpermute(rows, map, tokens, shape.top_k, shape.hidden);
    const DeviceBuffer h2 = input("h2", rows);
    const DeviceBuffer row_map = input("row_map", map);
    const DeviceBuffer y = output<uint16_t>("y", tokens * shape.hidden);
    const device::RowChainParams params{.input = h2.as<const void>(),
                                        .row_map = row_map.as<const int32_t>(),
                                        .output = y.as<void>(),
                                        .rows = tokens};
    const compiler::RowChainSpec spec{.load = compiler::LoadStage::kCombinedRows,
                                      .quantize = compiler::QuantizeStage::kNone,
                                      .columns = static_cast<int32_t>(shape.hidden),
                                      .top_k = static_cast<int32_t>(shape.top_k)};
    run(spec, ctas, params, {&h2, &row_map, &y});
    EXPECT_TRUE(matches(compare_bf16({"y", shape.hidden}, y.download<uint16_t>(), wanted)));
  }
};

TEST_F(UnpermuteKernel, AddsInDescendingRowOrderForAnyTopK) {
  for (const int64_t top_k : {1, 3, 8, 9, 12, 16, 22, 32, 33, 160}) {
    SCOPED_TRACE(top_k);
    expect_equal({.experts = 160, .top_k = top_k, .hidden = 144, .alignment = 1}, 13, 2,
                 static_cast<uint64_t>(top_k));
  }
}

TEST_F(UnpermuteKernel, TakesRowsOfAnyLength) {
  for (const int64_t hidden : {16, 128, 272, 2880}) {
    SCOPED_TRACE(hidden);
    expect_equal({.experts = 7, .top_k = 4, .hidden = hidden, .alignment = 16}, 11, 3, 2);
  }
}

TEST_F(UnpermuteKernel, GivesTheSameForAnyNumberOfCtasAndOrderOfThreads) {
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 4, 64}) {
    open(seed);
    expect_equal({.experts = 7, .top_k = 3, .hidden = 272, .alignment = 16}, 37, ctas, seed++);
  }
}

TEST_F(UnpermuteKernel, KeepsSpecialValues) {
  const reference::LayerShape shape{.top_k = 2, .hidden = 272};
  const auto rows = reference::special_activations(32, 272, 1);
  std::vector<int32_t> map;
  for (int32_t i = 0; i < 32; ++i) map.push_back(i % 5 == 0 ? -1 : (i * 7) % 32);
  expect_sum(rows, map, 16, shape, 2);
}

TEST_F(UnpermuteKernel, TakesNoTokens) {
  expect_sum(std::vector<uint16_t>(272), {}, 0, {.top_k = 2, .hidden = 272}, 2);
}

}  // namespace
}  // namespace moejit::testing
