// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/planner/grouped_gemm.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

ContractionGroupedGemmSpec problem(GradientOutput output) {
  return {.output = output, .local_experts = 8, .rows = 4096, .n = 7168};
}

TEST(ContractionGroupedGemm, CoversTheColumnsAsOtherGemmsDo) {
  const auto spec = choose_tiles(problem(GradientOutput::kF32), 4096);
  EXPECT_EQ(spec.wide_tiles, 36);
  EXPECT_EQ(spec.narrow_tiles, 2);
}

TEST(ContractionGroupedGemm, LoadsMoreOldValuesTheFewerTokensThereAre) {
  const auto many = choose_tiles(problem(GradientOutput::kF32Add), 4096);
  const auto some = choose_tiles(problem(GradientOutput::kF32Add), 1024);
  const auto few = choose_tiles(problem(GradientOutput::kF32Add), 512);
  EXPECT_EQ(many.panels_loaded, 0);
  EXPECT_EQ(some.panels_loaded, 3);
  EXPECT_EQ(few.panels_loaded, 4);
  EXPECT_EQ(few.panels_staged, 6);
  EXPECT_EQ(few.stages, 3);
  const auto loaded = [](int64_t tokens) {
    return choose_tiles(problem(GradientOutput::kF32Add), tokens).panels_loaded;
  };
  EXPECT_EQ(loaded(2048), 0);
  EXPECT_EQ(loaded(2047), 3);
  EXPECT_EQ(loaded(768), 3);
  EXPECT_EQ(loaded(767), 4);
}

// Where it was measured to gain: L2 adds everything, CTAs have many tiles, and promotion is short.
TEST(ContractionGroupedGemm, StaggersTheStartWhereManyLongTilesAreAddedByL2) {
  const ContractionGroupedGemmSpec adds = problem(GradientOutput::kF32Add);
  EXPECT_EQ(choose_tiles(adds, 4096).start_times, kStartTimes);
  EXPECT_EQ(choose_tiles(adds, 2048).start_times, kStartTimes);
  EXPECT_EQ(choose_tiles(adds, 1024).start_times, 1);
  EXPECT_EQ(choose_tiles(problem(GradientOutput::kF32), 4096).start_times, 1);
  EXPECT_EQ(choose_tiles(problem(GradientOutput::kBf16), 4096).start_times, 1);
  ContractionGroupedGemmSpec small = adds;
  small.n = 2048;  // 8 x 32 x 11 tiles
  EXPECT_EQ(choose_tiles(small, 4096).start_times, 1);
  for (const auto scales :
       {GradientScales::kRow, GradientScales::kNone, GradientScales::kRowColumn}) {
    ContractionGroupedGemmSpec other = adds;
    other.scales = scales;
    EXPECT_EQ(choose_tiles(other, 4096).start_times,
              scales == GradientScales::kRowColumn ? kStartTimes : 1);
  }
}

TEST(ContractionGroupedGemm, LoadsNothingWhereItOverwrites) {
  for (const auto output : {GradientOutput::kBf16, GradientOutput::kF32}) {
    EXPECT_EQ(choose_tiles(problem(output), 256).panels_loaded, 0);
  }
}

TEST(ContractionGroupedGemm, FitsIntoSharedMemory) {
  for (const auto scales : {GradientScales::kTile, GradientScales::kRow}) {
    for (const int64_t mean : {4096, 1024, 512}) {
      ContractionGroupedGemmSpec spec = problem(GradientOutput::kF32Add);
      spec.scales = scales;
      EXPECT_LE(launch_shape(choose_tiles(spec, mean)).shared_bytes, 232448);
    }
  }
}

TEST(ContractionGroupedGemm, HasTheSameTilesWhereEachElementHasAFactor) {
  for (const auto output : {GradientOutput::kBf16, GradientOutput::kF32, GradientOutput::kF32Add})
    for (const int64_t mean : {4096, 1024, 512}) {
      ContractionGroupedGemmSpec wanted = choose_tiles(problem(output), mean);
      wanted.scales = GradientScales::kRow;
      wanted.start_times = 1;
      ContractionGroupedGemmSpec row = problem(output);
      row.scales = GradientScales::kRow;
      EXPECT_EQ(choose_tiles(row, mean), wanted);
    }
}

TEST(ContractionGroupedGemm, MapsOneMatrixForEachExpert) {
  const auto spec = choose_tiles(problem(GradientOutput::kF32), 4096);
  const auto maps =
      contraction_grouped_gemm_tensor_maps(spec, 32768, {.a = "dy", .b = "act", .d = "dw2"});
  ASSERT_EQ(maps.size(), 3u);
  EXPECT_EQ(maps[0].box.dims, (std::array<int64_t, 4>{128, 4096, 256}));  // blocks of 128 columns
  EXPECT_EQ(maps[0].box.strides_bytes, (std::array<int64_t, 3>{128, 128 * 4096}));
  EXPECT_EQ(maps[0].box.box, (std::array<int32_t, 4>{128, 128, 1}));
  EXPECT_EQ(maps[1].box.dims, (std::array<int64_t, 4>{128, 7168, 256}));
  EXPECT_EQ(maps[1].box.box, (std::array<int32_t, 4>{128, 192, 1}));
  EXPECT_EQ(maps[0].box.call_dim, 2);
  EXPECT_EQ(maps[1].box.call_dim, 2);
  EXPECT_EQ(maps[2].box.call_dim, -1);  // gradients of weights have the same size in every call
  EXPECT_EQ(maps[2].box.dims, (std::array<int64_t, 4>{7168, 4096, 8}));
  EXPECT_EQ(maps[2].box.strides_bytes, (std::array<int64_t, 3>{4 * 7168, 4 * 7168 * 4096}));
  EXPECT_EQ(maps[2].box.box, (std::array<int32_t, 4>{32, 64, 1}));
}

// Each CTA of a cluster copies half of B: half of its rows, or of bf16 half of a step's tokens.
TEST(ContractionGroupedGemm, SplitsBAmongTheCtasOfACluster) {
  ContractionGroupedGemmSpec spec = choose_tiles(problem(GradientOutput::kF32), 4096);
  EXPECT_EQ(launch_shape(spec).cluster_ctas, 1);
  spec.cluster_ctas = 2;
  EXPECT_EQ(launch_shape(spec).cluster_ctas, 2);
  auto maps = contraction_grouped_gemm_tensor_maps(spec, 32768, {});
  EXPECT_EQ(maps[0].box.box, (std::array<int32_t, 4>{128, 128, 1}));
  EXPECT_EQ(maps[1].box.box, (std::array<int32_t, 4>{128, 96, 1}));
  spec.scales = GradientScales::kNone;
  maps = contraction_grouped_gemm_tensor_maps(spec, 32768, {});
  EXPECT_EQ(maps[0].box.box, (std::array<int32_t, 4>{64, 64, 1}));
  EXPECT_EQ(maps[1].box.box, (std::array<int32_t, 4>{64, 32, 1}));
}

TEST(ContractionGroupedGemm, KeepsWholeClustersBusy) {
  ContractionGroupedGemmSpec spec{.local_experts = 3, .rows = 2880, .n = 384, .wide_tiles = 2};
  EXPECT_EQ(busy_ctas(spec), 3 * 23 * 2);
  spec.cluster_ctas = 2;
  EXPECT_EQ(busy_ctas(spec), 3 * 24 * 2);
}

TEST(ContractionGroupedGemm, IsPlannedWithoutALayer) {
  const KernelPlan kernel =
      plan_contraction_grouped_gemm(problem(GradientOutput::kF32Add), 8192).value();
  const auto& spec = std::get<ContractionGroupedGemmSpec>(kernel.spec);
  EXPECT_EQ(spec, choose_tiles(problem(GradientOutput::kF32Add), 1024));
  EXPECT_EQ(kernel.launch.max_ctas, 8 * 32 * 38);
  auto maps = contraction_grouped_gemm_tensor_maps(spec, 8192, {"a", "b", "d"});
  maps.back().access = Access::kReadWrite;  // it adds to D
  EXPECT_EQ(kernel.tensor_maps, maps);
  EXPECT_EQ(kernel.bounds.groups, 8);
  EXPECT_EQ(kernel.numbers.size(), 2U);
  EXPECT_EQ(kernel.multiply_adds, int64_t{8192} * 4096 * 7168);
}

// A, B and the scales of their tiles once; D of 4 bytes once or, to add, twice.
TEST(ContractionGroupedGemm, CountsOldValuesWhereItAdds) {
  const int64_t operands = 1000 * (4096 + 7168) + 4 * (32 + 56) * 8;
  const int64_t gradient = int64_t{8} * 4096 * 7168;
  const CallRows rows{.routed = 1000, .padded = 2048};
  EXPECT_EQ(count_work({.spec = problem(GradientOutput::kBf16)}, rows).min_bytes,
            operands + 2 * gradient);
  EXPECT_EQ(count_work({.spec = problem(GradientOutput::kF32)}, rows).min_bytes,
            operands + 4 * gradient);
  EXPECT_EQ(count_work({.spec = problem(GradientOutput::kF32Add)}, rows).min_bytes,
            operands + 2 * 4 * gradient);
}

// Gradients of experts without columns are zeros, which are written, or nothing is added to them.
TEST(ContractionGroupedGemm, AddsNothingToGradientsOfExpertsWithoutColumns) {
  const CallRows all{.routed = 1000, .padded = 2048, .routed_experts = 8};
  const CallRows few{.routed = 1000, .padded = 2048, .routed_experts = 3};
  const auto saved = [&](GradientOutput output) {
    const KernelPlan kernel{.spec = problem(output)};
    return count_work(kernel, all).min_bytes - count_work(kernel, few).min_bytes;
  };
  EXPECT_EQ(saved(GradientOutput::kF32), 0);
  EXPECT_EQ(saved(GradientOutput::kF32Add), int64_t{5} * 2 * 4 * 4096 * 7168);
}

TEST(ContractionGroupedGemm, CountsAScaleForEachRow) {
  const CallRows rows{.routed = 1000, .padded = 2048};
  ContractionGroupedGemmSpec row = problem(GradientOutput::kF32);
  row.scales = GradientScales::kRow;
  EXPECT_EQ(count_work({.spec = row}, rows).min_bytes -
                count_work({.spec = problem(GradientOutput::kF32)}, rows).min_bytes,
            4 * 8 * (4096 + 7168 - 32 - 56));
}

TEST(GradientColumns, AlignEveryGroupToAStep) {
  Layer layer{.local_experts = 4, .top_k = 2};
  layer.max_tokens = 100;
  layer.splits_alignment = 128;
  layer.max_permuted_rows = 640;
  EXPECT_EQ(gradient_columns(call_bounds(layer)), 640);
  layer.splits_alignment = 16;
  // 200 rows and up to 127 more for each of 4 experts, in whole steps.
  EXPECT_EQ(gradient_columns(call_bounds(layer)), 768);
}

}  // namespace
}  // namespace moejit::compiler
