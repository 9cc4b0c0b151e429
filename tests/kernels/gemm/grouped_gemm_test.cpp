// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM against the CPU reference, bit for bit, and the same bits for a row whatever
// surrounds it.

#include "compiler/planner/grouped_gemm.h"

#include "compiler/support/integer.h"
#include "runtime/reference/number_formats.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <algorithm>
#include <set>

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::block_count;
using reference::QuantizedRows;
using reference::QuantizedWeights;

// With tiles of 128 rows, by single CTAs or by clusters of two that share B or A, the same of 256
// columns, or with swapped ones.
enum class Tiles {
  k128Rows,
  kClusters,
  kSharedA,
  kWidest,
  kWidestInClusters,
  kColumnHalves,  // as GPUs without WGMMA have them
  kSwapped,
  kSwappedInHalves,  // two CTAs share an SM
};

class GroupedGemm : public GemmTest, public ::testing::WithParamInterface<Tiles> {
 protected:
  static bool is_swapped() { return GetParam() >= Tiles::kSwapped; }
  static GroupedGemmSpec problem(int32_t experts, int32_t sections, int32_t section_n, int32_t k,
                                 int32_t sharing = 1) {
    if (is_swapped()) {
      const GroupedGemmSpec spec = swapped_problem(experts, sections, section_n, k, sharing);
      return GetParam() == Tiles::kSwapped ? spec : compiler::with_shared_sm(spec);
    }
    GroupedGemmSpec spec = GemmTest::problem(experts, sections, section_n, k, sharing);
    const bool is_widest = GetParam() == Tiles::kWidest || GetParam() == Tiles::kWidestInClusters;
    // They have no partial sums of two blocks.
    if (is_widest && sharing == 1) spec = of_widest_tiles(spec);
    if (GetParam() == Tiles::kClusters || GetParam() == Tiles::kWidestInClusters)
      spec.cluster_ctas = 2;
    if (GetParam() == Tiles::kSharedA) spec = sharing_a(spec);
    if (GetParam() == Tiles::kColumnHalves) spec = without_wgmma(spec);
    return spec;
  }
  // Shares A, with narrow tiles alone if the planner's are odd in number.
  static GroupedGemmSpec sharing_a(GroupedGemmSpec spec) {
    if (!may_share_a(spec)) {
      spec.wide_tiles = 0;
      spec.narrow_tiles = static_cast<int32_t>(ceil_div(spec.section_n, spec.narrow_columns));
    }
    return may_share_a(spec) ? compiler::with_shared_a(spec) : spec;
  }
  // Covers any number of columns with tiles of 256 alone, also where the planner would not.
  static GroupedGemmSpec of_widest_tiles(GroupedGemmSpec spec) {
    spec.wide_columns = compiler::kWidestColumns;
    spec.wide_tiles = static_cast<int32_t>(ceil_div(spec.section_n, spec.wide_columns));
    spec.narrow_tiles = 0;
    return spec;
  }

  // Two sections whose only tile has 48 columns to spare, and a last block of 16 of the
  // contraction.
  const GroupedGemmSpec ragged_ = problem(7, 2, 144, 272);
  const std::vector<int32_t> ragged_counts_ = {0, 1, 17, 0, 129, 128, 0};
};

TEST_P(GroupedGemm, EqualsTheReferenceForAnyAlignment) {
  for (const int32_t alignment : {16, 100}) {
    SCOPED_TRACE(alignment);
    expect_exact(ragged_, splits(ragged_counts_, alignment));
  }
}

// A tail has at most 64 rows and another division of labour, a tile at most 128. Swapped ones have
// 64 at most, and widths of 16, 32 and 64.
TEST_P(GroupedGemm, EqualsTheReferenceAroundTheSizesOfTilesAndTails) {
  for (const int32_t alignment : {1, 128}) {
    SCOPED_TRACE(alignment);
    expect_exact(ragged_, splits({64, 65, 127, 128, 129, 192, 193}, alignment));
  }
  expect_exact(ragged_, splits({15, 16, 17, 32, 33, 63, 130}, 128));
  // The second tile of a cluster has one row, is full, has none, and the next has one.
  expect_exact(ragged_, splits({255, 256, 257, 0, 383, 384, 385}, 1));
}

// More steps than stages, than suppliers fetch ahead (2 of A, 16 of B), and than the loop's
// unrolling. Less than a step is what the groups of many row tiles have.
TEST_P(GroupedGemm, EqualsTheReferenceForContractionsOfAnyLength) {
  for (const int32_t k : {128, 512, 640, 32 * 128, 35 * 128 + 16}) {
    SCOPED_TRACE(k);
    expect_exact(problem(3, 1, 192, k), splits({30, 0, 70}, 16));
  }
}

// Odd and even numbers of blocks, with a last one that is not full.
TEST_P(GroupedGemm, AddsUpBlocksThatShareTheirScales) {
  for (const int32_t k : {128, 256, 400, 1040, 35 * 128 + 16}) {
    SCOPED_TRACE(k);
    const GroupedGemmSpec spec = problem(3, 2, 144, k, 2);
    expect_exact(spec, splits({30, 0, 70}, 16));
  }
}

TEST_P(GroupedGemm, WritesZerosToPadRowsThatFillTilesOfTheirOwn) {
  expect_exact(ragged_, splits({1, 0, 0, 127, 0, 0, 64}, 300));
}

TEST_P(GroupedGemm, LetsANanOfAWeightReachItsColumnButNoPadRow) {
  QuantizedWeights weights = integer_weights(ragged_);
  const int64_t expert = 4;
  const int64_t column = 150;
  weights.q[(expert * weights.rows + column) * ragged_.k + 5] = 0x7f;
  const auto route = splits(ragged_counts_, 16);
  expect_exact(ragged_, route, integer_rows(ragged_, route.rows()), weights);
}

// Scales differ from block to block by up to 2^8, so that sums of blocks lose bits of each other.
TEST_P(GroupedGemm, EqualsTheReferenceWhereScalesOfBlocksDiffer) {
  const GroupedGemmSpec spec = problem(3, 1, 448, 1040);
  const auto route = splits({65, 10, 128}, 16);
  QuantizedRows rows = random_rows(spec, route.rows());
  QuantizedWeights weights = random_weights(spec);
  rows.scale_inv = integer_rows(spec, route.rows()).scale_inv;
  weights.scale_inv = integer_weights(spec).scale_inv;
  expect_exact(spec, route, rows, weights);
}

TEST_P(GroupedGemm, TouchesNothingWhereAllGroupsAreEmpty) {
  const QuantizedRows rows = integer_rows(ragged_, 1);  // never read
  const auto route = splits(std::vector<int32_t>(7, 0), 128);
  EXPECT_TRUE(multiply(ragged_, route, rows, integer_weights(ragged_)).empty());
}

// The walk over the groups takes 32 at a time.
TEST_P(GroupedGemm, FindsFewRowsAmongManyGroups) {
  const GroupedGemmSpec spec = problem(70, 1, 32, 16);
  std::vector<int32_t> counts(70, 0);
  for (const int32_t expert : {0, 31, 32, 63, 69}) counts[expert] = expert + 1;
  expect_exact(spec, splits(counts, 16));
  std::fill(counts.begin(), counts.end(), 0);
  counts[69] = 3;
  expect_exact(spec, splits(counts, 1));
}

// More than the 16 row tiles of a band.
TEST_P(GroupedGemm, CoversGroupsOfManyRowTiles) {
  expect_exact(problem(2, 2, 144, 16), splits({2200, 5}, 16));
}

// Each group alone: rows around it, which neighbours own in the other launch, stay poison.
TEST_P(GroupedGemm, WritesTheRowsOfItsGroupsAndNoOthers) {
  const QuantizedWeights weights = random_weights(ragged_);
  const int64_t n = weights.rows;
  for (const int32_t alignment : {1, 16}) {
    const auto route = splits({0, 1, 63, 64, 129, 200, 0}, alignment);
    const QuantizedRows rows = random_rows(ragged_, route.rows());
    const auto together = multiply(ragged_, route, rows, weights);
    for (std::size_t group = 0; group < route.counts.size(); ++group) {
      SCOPED_TRACE(group);
      const auto alone = multiply_all(ragged_, only_group(route, group), rows, weights);
      const int64_t begin = route.offs[group] * n;
      const int64_t end = route.offs[group + 1] * n;
      EXPECT_TRUE(untouched_from(head(alone, begin), 0));
      EXPECT_TRUE(untouched_from(alone, end));
      EXPECT_TRUE(std::equal(alone.begin() + begin, alone.begin() + end, together.begin() + begin));
    }
  }
}

TEST_P(GroupedGemm, DoesNotDependOnTheNumberOfCtas) {
  const auto route = splits(ragged_counts_, 16);
  const QuantizedRows rows = random_rows(ragged_, route.rows());
  const QuantizedWeights weights = random_weights(ragged_);
  const auto one = multiply(ragged_, route, rows, weights, 1);
  for (const int64_t ctas : {2, 5, 9, 40}) {
    EXPECT_EQ(one, multiply(ragged_, route, rows, weights, ctas)) << ctas << " CTAs";
  }
}

// Expert 4 has one row in one launch, and in others some among which are that same row: in tiles
// with other rows, of other widths, and behind the first.
TEST_P(GroupedGemm, GivesARowTheSameBitsWhereverItLies) {
  constexpr int64_t kRow = 150;
  const GroupedGemmSpec spec = problem(7, 2, 144, by_target(272, 7168));
  const QuantizedWeights weights = random_weights(spec);
  const QuantizedRows given = random_rows(spec, 200);
  const auto copy_row = [&](QuantizedRows& to, int64_t target) {
    const int64_t k = given.cols;
    std::copy_n(&given.q[kRow * k], k, &to.q[target * k]);
    std::copy_n(&given.scale_inv[kRow * block_count(k)], block_count(k),
                &to.scale_inv[target * block_count(k)]);
  };
  QuantizedRows one = random_rows(spec, 1);
  copy_row(one, 0);
  const auto alone = multiply(spec, splits({0, 0, 0, 0, 1, 0, 0}, 1), one, weights);
  for (const int32_t count : {9, 16, 20, 32, 50, 64, 80, 200}) {
    QuantizedRows many = random_rows(spec, count);
    const std::set<int64_t> copies = {0,        7, 8 % count, count / 2, std::min(70, count - 1),
                                      count - 1};
    for (const int64_t row : copies) copy_row(many, row);
    const auto among = multiply(spec, splits({0, 0, 0, 0, count, 0, 0}, 1), many, weights);
    for (const int64_t row : copies) {
      const std::vector<uint16_t> bits(&among[row * weights.rows],
                                       &among[(row + 1) * weights.rows]);
      EXPECT_EQ(bits, alone) << "row " << row << " of " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, GroupedGemm,
                         ::testing::Values(Tiles::k128Rows, Tiles::kClusters, Tiles::kSharedA,
                                           Tiles::kWidest, Tiles::kWidestInClusters,
                                           Tiles::kColumnHalves, Tiles::kSwapped,
                                           Tiles::kSwappedInHalves),
                         [](const auto& tiles) {
                           switch (tiles.param) {
                             case Tiles::k128Rows: return "Of128Rows";
                             case Tiles::kClusters: return "OfClusters";
                             case Tiles::kSharedA: return "SharingA";
                             case Tiles::kWidest: return "Widest";
                             case Tiles::kWidestInClusters: return "WidestInClusters";
                             case Tiles::kColumnHalves: return "ColumnHalves";
                             case Tiles::kSwapped: return "Swapped";
                             case Tiles::kSwappedInHalves: return "SwappedInHalves";
                           }
                           return "";
                         });

using ColumnTiles = GemmTest;

TEST_F(ColumnTiles, AreRightInBothWidths) {
  const GroupedGemmSpec spec = problem(3, 1, 448, 272);
  ASSERT_EQ(spec.wide_tiles, 1);
  ASSERT_EQ(spec.narrow_tiles, 2);
  expect_exact(spec, splits({65, 10, 128}, 16));
}

// Rounds of the ring that the main loop knows, and others; parts of tails in either half.
TEST_F(ColumnTiles, AreRightInTheWidestAndNarrow) {
  for (const int32_t k : {272, 1024, 1152}) {
    SCOPED_TRACE(k);
    const GroupedGemmSpec spec = compiler::with_widest_tiles(problem(3, 1, 640, k));
    ASSERT_EQ(spec.wide_tiles, 2);
    ASSERT_EQ(spec.narrow_tiles, 1);
    expect_exact(spec, splits({65, 10, 128}, 16));
    expect_exact(spec, splits({257, 64, 1}, 1));
  }
}

TEST_F(ColumnTiles, AreRightIfAllAreNarrow) {
  const GroupedGemmSpec spec = problem(3, 2, 128, 144);
  ASSERT_EQ(spec.wide_tiles, 0);
  ASSERT_EQ(spec.sections, 1);
  expect_exact(spec, splits({65, 10, 128}, 16));
}

using SwappedTiles = GemmTest;

// Two warps supply the factors of more than 64 rows. Groups have one tile of each width, or two.
TEST_F(SwappedTiles, OfMoreRowsAreRightForGroupsOfAnySize) {
  for (const int32_t rows : {96, 128}) {
    const GroupedGemmSpec spec = swapped_problem(7, 2, 144, 272, 1, rows);
    ASSERT_EQ(spec.tile_rows, rows);
    for (const int32_t alignment : {1, 16}) {
      expect_exact(spec, splits({120, 64, 65, 96, 97, 0, 128}, alignment));
      expect_exact(spec, splits({129, 0, 16, 200, 1, 33, 113}, alignment));
    }
  }
}

// Two CTAs beside each other share A, whose boxes they copy in turn; the last group has none to
// copy.
TEST_F(SwappedTiles, InClustersAreRightForGroupsOfAnySize) {
  for (const int32_t rows : {16, 128}) {
    GroupedGemmSpec spec = swapped_problem(7, 2, 144, 784, 1, rows);
    ASSERT_TRUE(may_share_a(spec));
    spec = with_shared_a(spec);
    for (const int32_t alignment : {1, 100}) {
      expect_exact(spec, splits({120, 64, 65, 15, 97, 0, 128}, alignment));
      expect_exact(spec, splits({129, 0, 16, 200, 1, 33, 0}, alignment));
    }
  }
}

// A group's last tile has factors of fewer rows than the one before it in the same stages.
TEST_F(SwappedTiles, OfMoreRowsHaveTheBitsOfTilesOf64Rows) {
  const GroupedGemmSpec few = swapped_problem(3, 1, 192, 1040);
  const auto route = splits({120, 0, 310}, 1);
  const QuantizedRows rows = random_rows(few, route.rows());
  const QuantizedWeights weights = random_weights(few);
  const auto wanted = multiply(few, route, rows, weights);
  for (const int32_t tile_rows : {96, 128})
    EXPECT_EQ(multiply(swapped_problem(3, 1, 192, 1040, 1, tile_rows), route, rows, weights, 1),
              wanted)
        << tile_rows;
}

// The planner takes fewer rows where no group of a layer can have more.
TEST_F(SwappedTiles, OfFewerRowsAreRightForGroupsOfAnySize) {
  for (const int32_t rows : {16, 32}) {
    const GroupedGemmSpec spec = swapped_problem(7, 2, 144, 272, 1, rows);
    ASSERT_EQ(spec.tile_rows, rows);
    for (const int32_t alignment : {1, 128}) {
      expect_exact(spec, splits({0, 1, 15, 16, 17, 32, 33}, alignment));
      expect_exact(spec, splits({130, 0, 64, 1, 31, 0, 48}, alignment));
    }
  }
}

// Groups of more than 16 tiles are walked in bands; the pad rows are all the last one's.
TEST_F(SwappedTiles, CoverGroupsOfManyTilesAndTheirPadRows) {
  expect_exact(swapped_problem(3, 1, 144, 16, 1, 16), splits({16 * 16 + 1, 5, 16 * 32}, 400));
}

}  // namespace
}  // namespace moejit::testing
