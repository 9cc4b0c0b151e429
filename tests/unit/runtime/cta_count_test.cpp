// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/kernel_call.h"

#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

using compiler::KernelPlan;

// 32 segments of 8 lanes, two in flight; a row has 2 segments: 32 rows a CTA.
const compiler::RowChainSpec kChain{.columns = 144, .threads = 256, .segments_in_flight = 2};

TEST(CtaCount, FollowsTheTokens) {
  const KernelPlan chain{.spec = kChain};
  EXPECT_EQ(cta_count(chain, 0, 132), 0);
  EXPECT_EQ(cta_count(chain, 33, 132), 2);
  EXPECT_EQ(cta_count(chain, 32000, 132), 1000);
}

TEST(CtaCount, GivesPersistentKernelsWhatTheDeviceHolds) {
  const KernelPlan chain{.spec = kChain, .launch = {.ctas_per_sm = 2}};
  EXPECT_EQ(cta_count(chain, 33, 132), 2);
  EXPECT_EQ(cta_count(chain, 32000, 132), 264);
}

TEST(CtaCount, IsAWholeNumberOfClusters) {
  const compiler::GroupedGemmSpec gemm{
      .local_experts = 2, .section_n = 192, .k = 128, .wide_tiles = 1, .cluster_ctas = 2};
  const KernelPlan kernel{.spec = gemm,
                          .bounds = {.max_tokens = 4096,
                                     .top_k = 1,
                                     .groups = 2,
                                     .splits_alignment = 1,
                                     .max_permuted_rows = 4096},
                          .launch = {.ctas_per_sm = 1, .cluster_ctas = 2}};
  EXPECT_EQ(cta_count(kernel, 4096, 132), 36);  // 16 clusters, and one for each group's end
  EXPECT_EQ(cta_count(kernel, 4096, 33), 32);
  EXPECT_EQ(cta_count(kernel, 4096, 1), 2);
}

}  // namespace
}  // namespace moejit::runtime
