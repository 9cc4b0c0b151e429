// SPDX-License-Identifier: Apache-2.0
// A tuner may take any candidate, so all of them give the bits of the usual one. The simulator runs
// every few of them, and the usual one, a GPU all.
#include "compiler/planner/candidates.h"

#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/chain_runner.h"

namespace moejit::testing {
namespace {

using compiler::LoadStage;
using compiler::QuantizeStage;
using compiler::RowChainSpec;
using compiler::StoreStage;

const std::size_t kStep = kIsSimulator ? 3 : 1;

class ChainCandidates : public Chains {
 protected:
  static constexpr int64_t kTokens = 75, kTopK = 3, kExperts = 7, kColumns = 272, kBlocks = 3;

  ChainCandidates() {
    shape_.max_rows = reference::enough_rows(kTokens, shape_);
    route_ = reference::route(
        reference::random_routing(kTokens, kExperts, kTopK, {1}, {.unrouted_share = 0.25}), kTokens,
        shape_);
  }

  // Returns all bytes that the chain writes.
  std::vector<uint8_t> run_chain(const RowChainSpec& spec) {
    const int64_t rows = shape_.max_rows;
    const DeviceBuffer data = input("input", reference::random_activations(rows, 2 * kColumns, 1));
    const DeviceBuffer gradient =
        input("gradient", reference::random_activations(rows, kColumns, 2));
    const DeviceBuffer scales = input("scales", reference::random_probs(rows, kBlocks, 3));
    const DeviceBuffer probs = input("probs", reference::random_probs(rows, kTopK, 4));
    const DeviceBuffer row_map = input("row_map", route_.row_map);
    const DeviceBuffer counts = input("counts", route_.counts);
    const DeviceBuffer offs = input("offs", route_.offs);
    const DeviceBuffer results[] = {output<uint8_t>("output", 4 * rows * 3 * 128),
                                    output<uint8_t>("scale_inv", 24 * rows),
                                    output<uint8_t>("output_probs", 4 * rows),
                                    output<uint8_t>("tokens", 4 * rows),
                                    output<uint8_t>("output_dprobs", 12 * rows),
                                    output<uint8_t>("kept", kTokens * kColumns),
                                    output<uint8_t>("kept_scale_inv", 12 * kTokens),
                                    output<uint8_t>("dprobs", 4 * kTokens * kTopK)};
    const device::RowChainParams params{
        .input = data.as<const void>(),
        .input_scale_inv = scales.as<const float>(),
        .gradient = gradient.as<const void>(),
        .probs = probs.as<const void>(),
        .row_map = row_map.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .output = results[0].as<void>(),
        .output_scale_inv = results[1].as<float>(),
        .output_probs = results[2].as<float>(),
        .row_tokens = results[3].as<int32_t>(),
        .output_dprobs = results[4].as<float>(),
        .kept_output = results[5].as<void>(),
        .kept_scale_inv = results[6].as<float>(),
        .rows = walks_permuted_rows(spec) ? rows : kTokens,
        .dprobs_blocks = scales.as<const float>(),
        .dprobs = results[7].as<void>(),
    };
    std::vector<const DeviceBuffer*> buffers = {&data,    &gradient, &scales, &probs,
                                                &row_map, &counts,   &offs};
    for (const DeviceBuffer& result : results) buffers.push_back(&result);
    run(spec, busy_ctas(spec, params.rows), params, buffers);
    std::vector<uint8_t> bytes;
    for (const DeviceBuffer& result : results) {
      const auto some = result.download<uint8_t>();
      bytes.insert(bytes.end(), some.begin(), some.end());
    }
    return bytes;
  }

  void expect_equal_bits(RowChainSpec usual) {
    usual.columns = kColumns;
    usual.local_experts = kExperts;
    usual.top_k = kTopK;
    const compiler::CallBounds bounds{.max_tokens = 4096,
                                      .top_k = kTopK,
                                      .groups = kExperts,
                                      .splits_alignment = 16,
                                      .max_permuted_rows = 4 * 4096};
    const auto programs = programs_of(candidates_of(usual, bounds));
    ASSERT_GT(programs.size(), kStep);
    const auto wanted = run_chain(programs.front());
    for (std::size_t i = kStep; i < programs.size(); i += kStep) {
      SCOPED_TRACE(to_string(programs[i]));
      EXPECT_EQ(run_chain(programs[i]), wanted);
    }
  }

 private:
  reference::LayerShape shape_{
      .experts = kExperts, .top_k = kTopK, .hidden = kColumns, .alignment = 16};
  reference::Route route_;
};

// Bursts of 48 rows are whole steps for some candidates, and are cut to whole steps for others.
TEST_F(ChainCandidates, ThatPermuteInBurstsHaveTheBitsOfTheUsualOne) {
  expect_equal_bits({.load = LoadStage::kQuantizedRows,
                     .quantize = QuantizeStage::kKeep,
                     .store = StoreStage::kPermuted,
                     .tells_tokens = true,
                     .rows_per_burst = 48});
}

// A row has three segments, of which the last has a scale of its own.
TEST_F(ChainCandidates, ThatQuantizePairsOfBlocksHaveTheBitsOfTheUsualOne) {
  expect_equal_bits(
      {.quantize = QuantizeStage::k1x128Pairs, .store = StoreStage::kRowsAndPermuted});
}

TEST_F(ChainCandidates, OfAnActivationsGradientHaveTheBitsOfTheUsualOne) {
  expect_equal_bits({.load = LoadStage::kGatedGradientRows,
                     .transform = compiler::TransformStage::kActivationBackward,
                     .store = StoreStage::kGroupedGatedRows,
                     .pitch = 384});
}

TEST_F(ChainCandidates, ThatSumATokensRowsHaveTheBitsOfTheUsualOne) {
  expect_equal_bits({.load = LoadStage::kCombinedRows,
                     .quantize = QuantizeStage::kNone,
                     .store = StoreStage::kRowsAndProbs,
                     .dprobs_columns = kBlocks});
}

}  // namespace
}  // namespace moejit::testing
