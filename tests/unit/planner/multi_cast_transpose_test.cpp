// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::compiler {
namespace {

using moejit::testing::succeeded;

// 1 + 6 + 0 + 0 + 2 tiles.
const std::vector<MatrixSize> kSizes = {{1, 1}, {300, 200}, {0, 128}, {128, 0}, {128, 129}};

KernelPlan kernel_of(const std::vector<MatrixSize>& sizes, const char* input = "bf16") {
  const auto plan =
      plan_operation({"multi_cast_transpose", {{"input_dtype", input}, {"sizes", sizes}}}, {});
  EXPECT_TRUE(succeeded(plan));
  return plan ? plan->kernels.front() : KernelPlan();
}

TEST(MultiCastTranspose, CountsTheTilesOfEachTensorAndOfAllBeforeIt) {
  EXPECT_EQ(cast_transpose_tile_ends(kSizes), (std::vector<int64_t>{1, 7, 7, 7, 9}));
  EXPECT_EQ(cast_transpose_tile_ends({}), std::vector<int64_t>{});
}

TEST(MultiCastTranspose, CountsTilesOfTensorsBeyondTwoToTheThirtyTwo) {
  const MatrixSize sizes[] = {{int64_t{1} << 33, int64_t{1} << 14}, {1, 1}};
  EXPECT_EQ(cast_transpose_tile_ends(sizes),
            (std::vector<int64_t>{int64_t{1} << 33, (int64_t{1} << 33) + 1}));
}

TEST(MultiCastTranspose, GetsACtaForEveryTile) {
  const KernelPlan kernel = kernel_of(kSizes);
  EXPECT_EQ(kernel.launch.max_ctas, 9);
  EXPECT_EQ(busy_ctas(kernel.spec, kernel.bounds, 0), 9);
  EXPECT_EQ(kernel.launch.threads, 256);
  EXPECT_EQ(kernel.launch.shared_bytes, 128 * 128 + 8 * 4);
  EXPECT_EQ(kernel.launch.ctas_per_sm, 0);
  EXPECT_EQ(kernel_of({{0, 0}}).launch.max_ctas, 0);
}

TEST(MultiCastTranspose, ReadsEveryElementAndWritesItsByteTwice) {
  const int64_t elements = 1 + 300 * 200 + 128 * 129;
  EXPECT_EQ(kernel_of(kSizes).min_bytes, 4 * elements);
  EXPECT_EQ(kernel_of(kSizes, "f32").min_bytes, 6 * elements);
}

TEST(MultiCastTranspose, NamesEveryChoice) {
  EXPECT_EQ(to_string(KernelSpec(MultiCastTransposeSpec{.output = DType::kF8E5M2})),
            "multi_cast_transpose input=BF16 output=F8_E5M2 threads=256");
}

}  // namespace
}  // namespace moejit::compiler
