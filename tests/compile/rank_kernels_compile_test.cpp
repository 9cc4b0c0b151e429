// SPDX-License-Identifier: Apache-2.0
// The kernels of tests/sim/kernels/ranks, which call everything that ranks tell each other with,
// become cubins. Needs NVRTC, no GPU.

#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "tests/sim/support/exchange.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

namespace moejit::runtime {
namespace {

class RankKernel : public ::testing::TestWithParam<std::string> {};

TEST_P(RankKernel, CompilesForAGpu) {
  const auto target = compiler::parse_target("cuda:sm_90a");
  ASSERT_TRUE(testing::succeeded(target));
  const auto source = test_kernel_source(rank_kernel_text(GetParam(), {}), GetParam(), *target);
  const auto identity = compiler::toolchain_identity(source);
  if (!identity) GTEST_SKIP() << to_string(identity.error());
  const auto binary = testing::test_engine().binary(source);
  ASSERT_TRUE(testing::succeeded(binary));
  EXPECT_EQ((*binary)->usage->spill_store_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Compile, RankKernel,
                         ::testing::Values("push", "receive", "send_home", "combine"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace moejit::runtime
