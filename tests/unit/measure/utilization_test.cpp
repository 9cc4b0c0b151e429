// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm.h"
#include "runtime/measure/sm_clock.h"

#include <gtest/gtest.h>

namespace moejit::measure {
namespace {

using compiler::KernelPlan;

TEST(Utilization, IsOneWhereEveryUnitWorksInEveryCycle) {
  // 132 SMs x 4096 x 1830 cycles in a microsecond.
  EXPECT_DOUBLE_EQ(utilization(989'429'760, 132, 4096, {.microseconds = 1, .megahertz = 1830}),
                   1.0);
}

TEST(Utilization, FallsWithTimeAndWithTheClock) {
  const int64_t work = 100 * 2048 * 1000;
  EXPECT_DOUBLE_EQ(utilization(work, 100, 2048, {.microseconds = 1, .megahertz = 2000}), 0.5);
  EXPECT_DOUBLE_EQ(utilization(work, 100, 2048, {.microseconds = 2, .megahertz = 2000}), 0.25);
  EXPECT_DOUBLE_EQ(utilization(work, 100, 4096, {.microseconds = 2, .megahertz = 2000}), 0.125);
}

TEST(Utilization, JudgesE4m3ByTwiceThePeakOfBf16) {
  EXPECT_EQ(peak_multiply_adds(KernelPlan{.arguments = {{"a", "permuted_q"},
                                                        {"a_scale_inv", "permuted_scale_inv"},
                                                        {"b", "w1_q"}}}),
            4096);
  EXPECT_EQ(peak_multiply_adds(KernelPlan{.arguments = {{"a", "x"}, {"b", "w1"}}}), 2048);
  EXPECT_EQ(peak_multiply_adds(compiler::plan_contraction_grouped_gemm(
                                   {.local_experts = 2, .rows = 128, .n = 128}, 256)
                                   .value()),
            4096);
}

}  // namespace
}  // namespace moejit::measure
