// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"

#include "compiler/compiler.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

const Layer kLayer{
    .local_experts = 8, .top_k = 2, .splits_alignment = 16, .max_permuted_rows = 1000};
const CallBounds kBoundsOfLayer = call_bounds(kLayer);

TEST(MostPermutedRows, CountsRowsAndPadRowsUpToTheBound) {
  EXPECT_EQ(most_permuted_rows(kBoundsOfLayer, 0), 0);
  EXPECT_EQ(most_permuted_rows(kBoundsOfLayer, 1), 2 + 2 * 15);
  EXPECT_EQ(most_permuted_rows(kBoundsOfLayer, 100), 200 + 8 * 15);
  EXPECT_EQ(most_permuted_rows(kBoundsOfLayer, 1000), 1000);
}

TEST(BusyCtas, KeepsRouteRunningWithoutTokens) {
  const RouteSpec route{.warps = 2};
  EXPECT_EQ(busy_ctas(route, kBoundsOfLayer, 0), 1);
  EXPECT_EQ(busy_ctas(route, kBoundsOfLayer, 65), 3);
  EXPECT_EQ(busy_ctas(route, kBoundsOfLayer, 5000), 32);
}

TEST(BusyCtas, FollowsTheRowsOfARowChain) {
  // 32 segments of 8 lanes, two in flight; a row has 2 segments: 32 rows a CTA.
  RowChainSpec chain{.columns = 144, .threads = 256, .segments_in_flight = 2};
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 0), 0);
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 1), 1);
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 33), 2);
  // 66 rows of choices and 8 groups with 15 pad rows each.
  chain.load = LoadStage::kGatedRows;
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 33), (66 + 8 * 15 + 31) / 32);
  chain.load = LoadStage::kGatedGradientRows;
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 33), (66 + 8 * 15 + 31) / 32);
}

TEST(CountWork, ReadsRealRowsOfAnActivationsGradientAndWritesPaddedOnes) {
  const KernelPlan kernel{.spec = RowChainSpec{.load = LoadStage::kGatedGradientRows,
                                               .transform = TransformStage::kActivationBackward,
                                               .store = StoreStage::kGroupedGatedRows,
                                               .columns = 144}};
  const CallRows rows{.tokens = 33, .routed = 66, .padded = 80};
  // Gate, up, gradient and probability; bytes, two scales and a sum of each of two blocks.
  EXPECT_EQ(count_work(kernel, rows).min_bytes,
            66 * (3 * 2 * 144 + 4) + 80 * (2 * 144 + 3 * 2 * 4));
}

TEST(BusyCtas, GivesEveryTileOrGroupOfTilesACta) {
  TileChainSpec chain{.sections = 2, .section_rows = 144, .columns = 272};
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 0), 8 * 2 * 2 * 3);
  chain.tiles_per_scale = 2;
  EXPECT_EQ(busy_ctas(chain, kBoundsOfLayer, 0), 8 * 2 * 2 * 2);
}

TEST(BusyCtas, CountsATileThatIsNotFullForEveryExpertThatHasRows) {
  GroupedGemmSpec gemm{.sections = 2, .wide_tiles = 1, .narrow_tiles = 2};
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 0), 0);
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 1), (0 + 2) * 6);
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 100), (320 / 128 + 8) * 6);
  gemm.epilogue = GemmEpilogue::kActivationQuantize;  // both sections in one tile
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 100), (320 / 128 + 8) * 3);
}

// Pad rows make no swapped tiles.
TEST(BusyCtas, CountsTokensForSwappedTiles) {
  const GroupedGemmSpec gemm{.sections = 2, .narrow_tiles = 3, .is_swapped = true, .tile_rows = 32};
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 0), 0);
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 1), (0 + 2) * 6);
  EXPECT_EQ(busy_ctas(gemm, kBoundsOfLayer, 100), (200 / 32 + 8) * 6);
}

}  // namespace
}  // namespace moejit::compiler
