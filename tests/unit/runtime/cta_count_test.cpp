// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/cta_count.h"

#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

using compiler::KernelPlan;

const compiler::Layer kLayer{
    .local_experts = 8, .top_k = 2, .splits_alignment = 16, .max_permuted_rows = 1000};

TEST(MostPermutedRows, CountsRowsAndPadRowsUpToTheBound) {
  EXPECT_EQ(most_permuted_rows(kLayer, 0), 0);
  EXPECT_EQ(most_permuted_rows(kLayer, 1), 2 + 2 * 15);
  EXPECT_EQ(most_permuted_rows(kLayer, 100), 200 + 8 * 15);
  EXPECT_EQ(most_permuted_rows(kLayer, 1000), 1000);
}

TEST(CtaCount, KeepsRouteRunningWithoutTokens) {
  const KernelPlan route{.spec = compiler::RouteSpec{}, .launch = {.threads = 64, .max_ctas = 4}};
  EXPECT_EQ(cta_count(route, kLayer, 0, 132), 1);
  EXPECT_EQ(cta_count(route, kLayer, 65, 132), 3);
  EXPECT_EQ(cta_count(route, kLayer, 5000, 132), 4);
}

TEST(CtaCount, FollowsTheTokensOfARowChain) {
  // 32 segments of 8 lanes, two in flight; a row has 2 segments: 32 rows a CTA.
  const KernelPlan chain{
      .spec = compiler::RowChainSpec{.columns = 144, .threads = 256, .segments_in_flight = 2},
      .launch = {.threads = 256, .max_ctas = 50}};
  EXPECT_EQ(cta_count(chain, kLayer, 0, 132), 0);
  EXPECT_EQ(cta_count(chain, kLayer, 1, 132), 1);
  EXPECT_EQ(cta_count(chain, kLayer, 33, 132), 2);
  EXPECT_EQ(cta_count(chain, kLayer, 100000, 132), 50);
}

TEST(CtaCount, GivesPersistentKernelsWhatTheDeviceHolds) {
  // Every expert reached may have one tile that is not full.
  const KernelPlan gemm{
      .spec =
          compiler::GroupedGemmSpec{.sections = 2, .section_n = 200, .tile_m = 128, .tile_n = 128},
      .launch = {.threads = 256, .max_ctas = 500, .ctas_per_sm = 1}};
  EXPECT_EQ(cta_count(gemm, kLayer, 0, 132), 0);
  EXPECT_EQ(cta_count(gemm, kLayer, 1, 132), (0 + 2) * 4);
  EXPECT_EQ(cta_count(gemm, kLayer, 100, 132), (320 / 128 + 8) * 4);
  EXPECT_EQ(cta_count(gemm, kLayer, 100, 4), 4);
}

}  // namespace
}  // namespace moejit::runtime
