// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/cta_count.h"

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

}  // namespace
}  // namespace moejit::runtime
