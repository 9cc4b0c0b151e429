// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/quantize.h"

#include "runtime/reference/layouts.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "templates/moejit_device/params/tile_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/layer_inputs.h"

namespace moejit::testing {
namespace {

using device::Bf16;
using device::E4m3;
using reference::block_count;

class QuantizeKernel : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& values, int64_t columns, float epsilon,
                    int64_t ctas, int64_t sharing = 1) {
    const int64_t rows = static_cast<int64_t>(values.size()) / columns;
    const auto wanted = reference::quantize_1x128(values, rows, columns, epsilon, sharing);
    const DeviceBuffer x = input("x", values);
    const DeviceBuffer q = output<uint8_t>("x_q", rows * columns);
    const DeviceBuffer scale_inv = output<float>("x_scale_inv", rows * block_count(columns));
    const device::RowChainParams params{.input = x.as<const void>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .rows = rows};
    const compiler::RowChainSpec spec{.quantize = quantize_stage(sharing),
                                      .columns = static_cast<int32_t>(columns),
                                      .epsilon = epsilon};
    run(spec, ctas, params, {&x, &q, &scale_inv});
    EXPECT_TRUE(matches(compare_e4m3({"x_q", columns}, q.download<uint8_t>(), wanted.q)));
    EXPECT_TRUE(matches(compare_f32({"x_scale_inv", block_count(columns)},
                                    scale_inv.download<float>(), wanted.scale_inv)));
  }
};

TEST_F(QuantizeKernel, EqualsTheReferenceForRowsOfAnyLength) {
  for (const int64_t columns : {16, 112, 128, 144, 640, 2880}) {
    SCOPED_TRACE(columns);
    expect_equal(reference::random_activations(19, columns, 1), columns, 1e-10f, 3);
  }
}

TEST_F(QuantizeKernel, EqualsTheReferenceOnSpecialValues) {
  const int64_t rows = 2 * reference::kSpecialBlocks;
  for (const float epsilon : {0.0f, 1e-10f}) {
    expect_equal(reference::special_activations(rows, 272, 1), 272, epsilon, 2);
  }
}

// Each row's amax is another bf16 number: all of them from 0 to Inf.
TEST_F(QuantizeKernel, FindsTheScaleOfEveryAmax) {
  const int64_t rows = 0x7f81;
  std::vector<uint16_t> values(static_cast<size_t>(rows * 16));
  for (int64_t row = 0; row < rows; ++row) {
    const auto amax = static_cast<uint16_t>(row);
    auto* const first = &values[static_cast<size_t>(row * 16)];
    first[row % 16] = static_cast<uint16_t>(amax | (row % 2 != 0 ? 0x8000 : 0));
    first[(row + 1) % 16] = amax >> 1;
    first[(row + 2) % 16] = 0x7fc0;  // NaN counts as nothing
  }
  for (const float epsilon : {0.0f, 1e-10f, 1.0f}) expect_equal(values, 16, epsilon, 4);
}

TEST_F(QuantizeKernel, GivesTheSameForAnyNumberOfCtas) {
  const auto values = reference::random_activations(23, 272, 5);
  for (const int64_t ctas : {1, 2, 3, 7, 50}) expect_equal(values, 272, 1e-10f, ctas);
}

// Odd and even numbers of blocks, in rows that begin anywhere in a warp.
TEST_F(QuantizeKernel, GivesPairsOfBlocksTheScaleOfBoth) {
  for (const int64_t columns : {16, 128, 144, 256, 272, 640, 2880}) {
    SCOPED_TRACE(columns);
    for (const int64_t ctas : {1, 4}) {
      expect_equal(reference::random_activations(19, columns, 1), columns, 1e-10f, ctas, 2);
    }
  }
  const int64_t rows = 2 * reference::kSpecialBlocks;
  for (const int64_t columns : {272, 400}) {
    expect_equal(reference::special_activations(rows, columns, 1), columns, 0.0f, 2, 2);
  }
}

TEST_F(QuantizeKernel, TakesNoRows) { expect_equal({}, 272, 1e-10f, 2); }

class WeightsKernel : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& weights, int64_t matrices, int32_t sections,
                    int32_t section_rows, int32_t columns, int64_t ctas, int32_t sharing = 1,
                    bool is_interleaved = false) {
    const int64_t rows = int64_t{sections} * section_rows;
    const auto wanted =
        reference::quantize_128x128(weights, matrices, rows, columns, sections, sharing);
    const DeviceBuffer w =
        input("w", is_interleaved ? reference::interleaved<uint16_t>(weights, section_rows, columns)
                                  : weights);
    const DeviceBuffer q = output<uint8_t>("w_q", matrices * rows * columns);
    const DeviceBuffer scale_inv =
        output<float>("w_scale_inv", matrices * wanted.scale_rows() * block_count(columns));
    const device::TileChainParams params{.input = w.as<const Bf16>(),
                                         .output = q.as<E4m3>(),
                                         .output_scale_inv = scale_inv.as<float>(),
                                         .matrices = matrices};
    const compiler::TileChainSpec spec{.sections = sections,
                                       .section_rows = section_rows,
                                       .columns = columns,
                                       .tiles_per_scale = sharing,
                                       .is_interleaved = is_interleaved,
                                       .threads = 256 * sharing};
    run(spec, ctas, params, {&w, &q, &scale_inv});
    EXPECT_TRUE(matches(compare_e4m3({"w_q", columns}, q.download<uint8_t>(), wanted.q)));
    EXPECT_TRUE(matches(compare_f32({"w_scale_inv", block_count(columns)},
                                    scale_inv.download<float>(), wanted.scale_inv)));
  }
};

TEST_F(WeightsKernel, RestartsTilesAtEachSection) {
  for (const int64_t ctas : {1, 5, 40}) {
    expect_equal(reference::random_weights(2, 2 * 144, 272, 1), 2, 2, 144, 272, ctas);
  }
}

TEST_F(WeightsKernel, SortsRowsOfSectionsThatAlternate) {
  for (const int32_t rows : {16, 128, 144}) {
    for (const int32_t sharing : {1, 2})
      expect_equal(reference::random_weights(3, 2 * rows, 272, 1), 3, 2, rows, 272, 4, sharing,
                   true);
  }
}

TEST_F(WeightsKernel, TakesWholeAndPartialTiles) {
  expect_equal(reference::random_weights(3, 128, 128, 2), 3, 1, 128, 128, 2);
  expect_equal(reference::random_weights(3, 16, 48, 3), 3, 1, 16, 48, 2);
}

TEST_F(WeightsKernel, EqualsTheReferenceOnSpecialValues) {
  auto weights = reference::special_activations(288, 272, 3);
  std::fill_n(weights.begin(), 128 * 272, uint16_t{0});  // tiles of zeros: scale 1
  expect_equal(weights, 1, 2, 144, 272, 3);
}

// Odd and even numbers of tiles in a row of them.
TEST_F(WeightsKernel, GivesPairsOfTilesTheScaleOfBoth) {
  for (const int32_t columns : {16, 128, 256, 272, 400}) {
    SCOPED_TRACE(columns);
    const auto weights = reference::random_weights(2, 2 * 144, columns, 1);
    for (const int64_t ctas : {1, 7}) expect_equal(weights, 2, 2, 144, columns, ctas, 2);
  }
  auto weights = reference::special_activations(288, 400, 3);
  std::fill_n(weights.begin(), 128 * 400, uint16_t{0});
  expect_equal(weights, 1, 2, 144, 400, 3, 2);
}

TEST_F(WeightsKernel, TakesNoMatrices) { expect_equal({}, 0, 2, 144, 272, 2); }

}  // namespace
}  // namespace moejit::testing
