// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

const TransposeSpec kSpec{.local_experts = 8, .columns = 272, .threads = 256};

TEST(Transpose, GivesEveryTileTwoWarpsAndAPlaceForTheirScales) {
  const LaunchShape shape = launch_shape(kSpec);
  EXPECT_EQ(shape.threads, 256);
  EXPECT_EQ(shape.shared_bytes, 4 * 2 * 4);
  EXPECT_EQ(shape.ctas_per_sm, 0);
}

// Rows of 3 tiles, 4 tiles a CTA.
TEST(Transpose, KeepsOneCtaBusyForEveryFourTiles) {
  EXPECT_EQ(busy_ctas(kSpec, int64_t{0}), 0);
  EXPECT_EQ(busy_ctas(kSpec, int64_t{128}), 1);
  EXPECT_EQ(busy_ctas(kSpec, int64_t{6 * 128}), 5);
}

TEST(Transpose, FollowsTheColumnsThatTokensCanFill) {
  Layer layer{.local_experts = 8,
              .top_k = 2,
              .splits_alignment = 16,
              .max_tokens = 1000,
              .max_permuted_rows = 2944};
  // Two experts with a row each: two tiles of rows.
  EXPECT_EQ(busy_ctas(kSpec, call_bounds(layer), 1), busy_ctas(kSpec, int64_t{2 * 128}));
  EXPECT_EQ(busy_ctas(kSpec, call_bounds(layer), 1000),
            busy_ctas(kSpec, gradient_columns(call_bounds(layer))));
  layer.splits_alignment = 128;
  EXPECT_EQ(busy_ctas(kSpec, call_bounds(layer), 1), busy_ctas(kSpec, int64_t{2 * 128}));
  EXPECT_EQ(busy_ctas(kSpec, call_bounds(layer), 1000),
            busy_ctas(kSpec, gradient_columns(call_bounds(layer))));
}

TEST(Transpose, MovesEveryRealRowInAndOutWithItsScales) {
  const KernelPlan kernel{.operation = "transpose", .spec = kSpec};
  const Work work = count_work(kernel, {.routed = 1000, .padded = 2048});
  EXPECT_EQ(work.min_bytes, 2 * 1000 * 272 + 4 * 3 * 1000 + 4 * 3 * 8);
  EXPECT_EQ(work.multiply_adds, 0);
}

TEST(PlanTranspose, GivesTheKernelsOfLayersAndOthers) {
  const auto kernel_of = [](const OperationDescription& operation) {
    const auto plan = plan_operation(operation, {});
    EXPECT_TRUE(moejit::testing::succeeded(plan));
    return plan ? plan->kernels.front() : KernelPlan();
  };
  const auto names = [](const KernelPlan& plan) {
    std::string all;
    for (const KernelArgument& argument : plan.arguments) all += argument.role + " ";
    return all;
  };
  const std::string always =
      "input input_scale_inv counts offs output_offs output output_scale_inv status ";
  const KernelPlan kernel = kernel_of(
      {"transpose", {{"local_experts", 8}, {"max_permuted_rows", 1000}, {"columns", 272}}});
  // 8 experts with 1000 rows have at most 16 tiles.
  EXPECT_EQ(kernel.launch.max_ctas, 16 * 3 / 2);
  EXPECT_EQ(kernel.min_bytes, 2 * 1000 * 272 + 4 * 3 * 1000 + 4 * 3 * 8);
  EXPECT_EQ(names(kernel), always);
  const KernelPlan other = kernel_of({"transpose",
                                      {{"local_experts", 1},
                                       {"max_permuted_rows", 1},
                                       {"columns", 16},
                                       {"dtype", "f8_e5m2"},
                                       {"rule", "fork_compat"},
                                       {"count_flushed", true}}});
  EXPECT_EQ(names(other), always + "flushed ");
  const auto source = emit_kernel(other, {});
  ASSERT_TRUE(moejit::testing::succeeded(source));
  EXPECT_NE(source->text.find("ForkCompatRescale<E5m2>"), std::string::npos) << source->text;
  EXPECT_NE(source->text.find("CountFlushed"), std::string::npos) << source->text;
}

TEST(Transpose, NamesEveryChoice) {
  EXPECT_EQ(to_string(KernelSpec(kSpec)),
            "transpose format=F8_E4M3 rule=ideal local_experts=8 columns=272 counts_flushed=false "
            "threads=256");
}

}  // namespace
}  // namespace moejit::compiler
