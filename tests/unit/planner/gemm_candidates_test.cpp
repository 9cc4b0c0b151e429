// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace moejit::compiler {
namespace {

constexpr std::size_t kMostCandidatesOfGemm = 44;

// Shapes of published models, a shape nobody has, and one tile.
const std::vector<GroupedGemmSpec> kProblems = {
    {.local_experts = 8, .sections = 2, .section_n = 14336, .k = 4096},
    {.local_experts = 8, .section_n = 4096, .k = 14336},
    {.local_experts = 128, .section_n = 2048, .k = 768},
    {.local_experts = 3, .sections = 2, .section_n = 144, .k = 272},
    {.operands = DType::kBF16,
     .scales = GemmScales::kNone,
     .local_experts = 8,
     .section_n = 7168,
     .k = 2048},
    {.operands = DType::kBF16,
     .scales = GemmScales::kNone,
     .b_major = Major::kMn,
     .local_experts = 8,
     .section_n = 2880,
     .k = 2880},
    {.epilogue = GemmEpilogue::kActivationQuantize,
     .local_experts = 8,
     .sections = 2,
     .section_n = 2048,
     .k = 7168},
    {.operands = DType::kBF16,
     .scales = GemmScales::kNone,
     .epilogue = GemmEpilogue::kActivation,
     .local_experts = 8,
     .sections = 2,
     .section_n = 768,
     .k = 2048},
    {.local_experts = 1, .section_n = 16, .k = 16},
};
const std::vector<GroupRows> kRowsOfGroups = {
    {1, 1, 8},         {8, 64, 64},        {40, 2048, 320},     {100, 8192, 800},
    {500, 8192, 4000}, {1024, 4096, 8192}, {8192, 65536, 65536}};

template <typename Spec>
void expect_legal(const std::vector<Candidate<Spec>>& candidates) {
  ASSERT_GE(candidates.size(), 2U);
  EXPECT_LE(candidates.size(), kMostCandidatesOfGemm);
  std::set<Choices> choices;
  for (const Candidate<Spec>& candidate : candidates) {
    EXPECT_LE(launch_shape(candidate.spec).shared_bytes, Target{}.shared_memory_bytes);
    EXPECT_TRUE(choices.insert(candidate.choices).second) << to_string(candidate.choices);
    EXPECT_EQ(candidate.choices, choices_of(candidate.spec));
  }
}

Choices with(Choices choices, const std::string& knob, int64_t value) {
  choices[knob] = value;
  return choices;
}

TEST(GemmCandidates, BeginWithTheUsualSpecAndAreLegalAndFew) {
  for (const GroupedGemmSpec& problem : kProblems)
    for (const GroupRows& rows : kRowsOfGroups) {
      SCOPED_TRACE(problem_name(problem, rows));
      const auto candidates = grouped_gemm_candidates(problem, rows);
      expect_legal(candidates);
      EXPECT_EQ(candidates.front().spec, choose_spec(problem, rows));
    }
}

TEST(GemmCandidates, OfWgradBeginWithTheUsualSpecAndAreLegalAndFew) {
  for (const GradientScales scales :
       {GradientScales::kTile, GradientScales::kRow, GradientScales::kNone})
    for (const GradientOutput output : {GradientOutput::kBf16, GradientOutput::kBf16Add,
                                        GradientOutput::kF32, GradientOutput::kF32Add})
      for (const int64_t columns : {1, 500, 1000, 4096}) {
        const ContractionGroupedGemmSpec problem{
            .scales = scales, .output = output, .local_experts = 8, .rows = 4096, .n = 7168};
        SCOPED_TRACE(problem_name(problem, columns));
        const auto candidates = contraction_grouped_gemm_candidates(problem, columns);
        expect_legal(candidates);
        EXPECT_EQ(candidates.front().spec, choose_tiles(problem, columns));
      }
}

// What decides the bits of a result is the same in all of them.
TEST(GemmCandidates, DifferInNothingThatDecidesBits) {
  for (const GroupedGemmSpec& problem : kProblems)
    for (const GroupRows& rows : kRowsOfGroups)
      for (const auto& candidate : grouped_gemm_candidates(problem, rows)) {
        const GroupedGemmSpec& one = candidate.spec;
        const GroupedGemmSpec usual = choose_spec(problem, rows);
        EXPECT_EQ(one.blocks_per_promotion, usual.blocks_per_promotion);
        EXPECT_EQ(one.sections * one.section_n, usual.sections * usual.section_n);
        EXPECT_EQ(one.accumulation, usual.accumulation);
        EXPECT_EQ(one.epilogue, usual.epilogue);
      }
}

// 256 tiles of 128 rows in a group: 4 to 32 of them in a band are four orders. 192 * 75 columns are
// 112.5 tiles of 128.
TEST(GemmCandidates, OfManyRowsHaveAllBandsAndCovers) {
  const auto candidates =
      grouped_gemm_candidates({.local_experts = 8, .section_n = 14400, .k = 4096}, {8192, 32768});
  const auto has = [&](const Choices& choices) {
    return std::ranges::count(candidates, choices, &Candidate<GroupedGemmSpec>::choices) == 1;
  };
  for (const int64_t band : {4, 8, 16, 32}) {
    const Choices wide = {{"band_tiles", band}, {"narrow_tiles", 0}, {"wide_tiles", 75}};
    const Choices narrow = {{"band_tiles", band}, {"narrow_tiles", 113}, {"wide_tiles", 0}};
    for (const int64_t stages : {3, 4}) EXPECT_TRUE(has(with(wide, "stages", stages)));
    EXPECT_TRUE(has(with(narrow, "stages", 4)));
    EXPECT_TRUE(has(with(with(wide, "stages", 4), "cluster_ctas", 2)));
    EXPECT_EQ(has(with(with(wide, "stages", 3), "cluster_ctas", 2)), band == 16);
    EXPECT_FALSE(has(with(with(narrow, "stages", 4), "cluster_ctas", 2)));
  }
}

// Once each, single and in clusters, and not where two blocks are one partial sum; in all orders
// where they are usual.
TEST(GemmCandidates, HaveTheWidestTilesOfKMajorOperands) {
  const auto count = [](const GroupedGemmSpec& problem, int64_t ctas) {
    return std::ranges::count_if(
        grouped_gemm_candidates(problem, {4096, 8192}), [&](const auto& candidate) {
          const Choices& choices = candidate.choices;
          return choices.contains("wide_columns") && choices.at("wide_columns") == 256 &&
                 candidate.spec.cluster_ctas == ctas && candidate.spec.wide_tiles == 10 &&
                 candidate.spec.narrow_tiles == 1;
        });
  };
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 2688, .k = 4096};
  EXPECT_EQ(count(problem, 1), 1);
  EXPECT_EQ(count(problem, 2), 1);
  GroupedGemmSpec shared = problem, narrow = problem, bf16 = problem;
  shared.blocks_per_promotion = 2;
  narrow.section_n = 248;
  bf16.operands = DType::kBF16;
  bf16.scales = GemmScales::kNone;
  EXPECT_EQ(count(shared, 1), 0);
  EXPECT_EQ(count(narrow, 1), 0);
  EXPECT_EQ(count(bf16, 1), 1);
  bf16.b_major = Major::kMn;
  EXPECT_EQ(count(bf16, 1), 0);
  GroupedGemmSpec usual = problem;
  usual.section_n = 2560;
  usual.k = 7168;
  const auto candidates = grouped_gemm_candidates(usual, {8192, 32768});
  EXPECT_EQ(candidates.front().choices.at("wide_columns"), 256);
  for (const int64_t band : {4, 8, 16, 32})
    EXPECT_EQ(std::ranges::count(candidates, with(candidates.front().choices, "band_tiles", band),
                                 &Candidate<GroupedGemmSpec>::choices),
              1);
}

// A group of 430 rows is of the class of 362, one of 431 of the class of 512.
TEST(GemmCandidates, HaveClustersThatShareBWhereGroupsHaveSeveralRowTiles) {
  const auto have_clusters = [](const GroupedGemmSpec& problem, int64_t rows) {
    return std::ranges::any_of(
        grouped_gemm_candidates(problem, {rows, 8192}), [](const auto& candidate) {
          return candidate.spec.cluster_ctas == 2 && !candidate.spec.shares_a;
        });
  };
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 4096, .k = 7168};
  EXPECT_TRUE(have_clusters(problem, 8192));
  EXPECT_TRUE(have_clusters(problem, 431));
  EXPECT_FALSE(have_clusters(problem, 430));
  GroupedGemmSpec gated = problem, mn_major = problem;
  gated.sections = 2;
  gated.epilogue = GemmEpilogue::kActivationQuantize;
  EXPECT_TRUE(have_clusters(gated, 8192));
  mn_major.operands = DType::kBF16;
  mn_major.scales = GemmScales::kNone;
  mn_major.b_major = Major::kMn;
  EXPECT_FALSE(have_clusters(mn_major, 8192));
}

// 4096 columns are 20 wide tiles and 2 narrow ones, 22 wide ones or 32 narrow ones; 2048 are 10 and
// 1, 11, or 16.
TEST(GemmCandidates, HaveClustersThatShareAWhereColumnTilesAreEvenInNumber) {
  const auto count = [](const GroupedGemmSpec& problem, int64_t rows) {
    return std::ranges::count_if(grouped_gemm_candidates(problem, {rows, 8192}),
                                 [](const auto& candidate) { return candidate.spec.shares_a; });
  };
  GroupedGemmSpec problem{.local_experts = 8, .section_n = 4096, .k = 7168};
  EXPECT_EQ(count(problem, 430), 3);
  EXPECT_EQ(count(problem, 431), 0);
  problem.section_n = 2048;
  EXPECT_EQ(count(problem, 430), 1);
  problem.operands = DType::kBF16;
  problem.scales = GemmScales::kNone;
  problem.b_major = Major::kMn;
  EXPECT_EQ(count(problem, 430), 0);
}

// wgrad has them where there are wide tiles below each other, and groups have several steps.
TEST(GemmCandidates, OfWgradHaveClustersWhereTilesHaveSeveralSteps) {
  const auto count_clusters = [](const ContractionGroupedGemmSpec& problem, int64_t columns) {
    return std::ranges::count_if(
        contraction_grouped_gemm_candidates(problem, columns),
        [](const auto& candidate) { return candidate.choices.contains("cluster_ctas"); });
  };
  const ContractionGroupedGemmSpec problem{
      .output = GradientOutput::kF32Add, .local_experts = 8, .rows = 4096, .n = 7168};
  EXPECT_EQ(count_clusters(problem, 4096), 5);  // four bands, and three stages
  EXPECT_EQ(count_clusters(problem, 431), 4);   // whose usual choice has three
  EXPECT_EQ(count_clusters(problem, 430), 0);
  ContractionGroupedGemmSpec bf16 = problem, row = problem, one_tile = problem, narrow = problem;
  bf16.scales = GradientScales::kNone;
  EXPECT_EQ(count_clusters(bf16, 4096), 5);
  row.scales = GradientScales::kRow;
  EXPECT_EQ(count_clusters(row, 4096), 5);
  one_tile.rows = 128;
  EXPECT_EQ(count_clusters(one_tile, 4096), 0);
  narrow.n = 128;
  EXPECT_EQ(count_clusters(narrow, 4096), 0);
}

// Old values that are loaded come under the products, not in bursts. Records name such choices.
TEST(GemmCandidates, OfWgradStartTogetherWhereOldValuesAreLoaded) {
  const ContractionGroupedGemmSpec problem{
      .output = GradientOutput::kF32Add, .local_experts = 8, .rows = 4096, .n = 7168};
  const auto candidates = contraction_grouped_gemm_candidates(problem, 4096);
  ASSERT_TRUE(candidates.front().choices.contains("start_times"));
  ContractionGroupedGemmSpec together = candidates.front().spec;
  together.start_times = 1;
  const auto has = [&](const ContractionGroupedGemmSpec& spec) {
    return std::ranges::any_of(candidates,
                               [&](const auto& candidate) { return candidate.spec == spec; });
  };
  EXPECT_TRUE(has(together));
  for (const int32_t panels : {2, 3}) {
    together.panels_loaded = panels;
    EXPECT_TRUE(has(together)) << panels;
  }
}

TEST(GemmCandidates, OfFewRowsAreSwappedAlone) {
  for (const auto& candidate :
       grouped_gemm_candidates({.local_experts = 8, .section_n = 4096, .k = 7168}, {16, 128}))
    EXPECT_TRUE(candidate.spec.is_swapped);
}

// Each number of rows comes with as many stages as fit, and with fewer.
TEST(GemmCandidates, OfFewRowsHaveTilesOfAllRows) {
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 4096, .k = 7168};
  for (const GroupRows& rows : {GroupRows{16, 128, 128}, {64, 4096, 512}}) {
    const auto candidates = grouped_gemm_candidates(problem, rows);
    EXPECT_LE(candidates.size(), 44u);
    std::map<int32_t, std::set<int32_t>> stages;
    std::set<int32_t> clustered, sharing_sm;
    for (const auto& [spec, choices] : candidates) {
      if (!spec.is_swapped) continue;
      if (spec.ctas_per_sm > 1) {
        sharing_sm.insert(spec.tile_rows);
        EXPECT_LE(2 * (launch_shape(spec).shared_bytes + 1024), 228 * 1024);
        continue;
      }
      stages[spec.tile_rows].insert(spec.stages);
      if (spec.cluster_ctas > 1) clustered.insert(spec.tile_rows);
    }
    EXPECT_EQ(clustered, (std::set{16, 32, 64, 96, 128}));
    EXPECT_EQ(sharing_sm, clustered);
    const std::map<int32_t, std::set<int32_t>> wanted = {
        {16, {6, 8, 10, 12}}, {32, {6, 8, 10}}, {64, {6, 8}}, {96, {6, 7}}, {128, {5}}};
    EXPECT_EQ(stages, wanted);
  }
}

TEST(GemmCandidates, RowsOfOneClassShareTheProblemsName) {
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 4096, .k = 7168};
  EXPECT_EQ(problem_name(problem, {1000, 8192}), problem_name(problem, {1100, 4096}));
  EXPECT_NE(problem_name(problem, {1000, 8192}), problem_name(problem, {1500, 8192}));
  EXPECT_EQ(problem_name(problem, {1024, 8192}),
            "grouped_gemm operands=F8_E4M3 scales=row_block epilogue=store_bf16 "
            "blocks_per_promotion=1 local_experts=8 sections=1 section_n=4096 k=7168 rows=1024");
}

// 2^(b/2), and the borders 2^(b/2 + 1/4): 1.19, 1.68, 2.38, 3.36, 4.76, 6.73, 9.51, 13.5, 19.03.
TEST(GemmCandidates, ClassesOfRowsAreTwoToAnOctave) {
  const std::vector<std::pair<int64_t, int64_t>> wanted = {
      {1, 1},       {2, 2},       {3, 3},
      {4, 4},       {5, 6},       {6, 6},
      {7, 8},       {9, 8},       {10, 11},
      {13, 11},     {14, 16},     {19, 16},
      {20, 23},     {64, 64},     {76, 64},
      {77, 91},     {1024, 1024}, {1217, 1024},
      {1218, 1448}, {4096, 4096}, {(1 << 30), (1 << 30)}};
  for (const auto& [rows, middle] : wanted) EXPECT_EQ(rows_class(rows), middle) << rows;
}

}  // namespace
}  // namespace moejit::compiler
