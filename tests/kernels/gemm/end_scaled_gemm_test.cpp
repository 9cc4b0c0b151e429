// SPDX-License-Identifier: Apache-2.0
// Grouped GEMMs whose scales belong to tensors, to rows and columns, or to nothing: what differs
// from GEMMs with scales of blocks, and that the rest fits together.

#include "compiler/planner/grouped_gemm.h"
#include "tests/kernels/gemm/end_scaled_runner.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <string>

namespace moejit::testing {
namespace {

using compiler::GemmAccumulation;
using compiler::GemmScales;
using compiler::GroupedGemmSpec;
using reference::EndScaledOperands;

class EndScaledGemm : public EndScaledGemmTest,
                      public ::testing::WithParamInterface<EndScaledKind> {
 protected:
  static GroupedGemmSpec problem(int32_t experts, int32_t sections, int32_t section_n, int32_t k) {
    return EndScaledGemmTest::problem(GetParam(), experts, sections, section_n, k);
  }
  // 288 columns in a wide and a narrow tile, and a last step that is not full.
  const GroupedGemmSpec ragged_ = problem(7, 2, 144, 272);
  const GroupedGemmSpec wide_ = problem(3, 1, 328, by_target(1040, 7168));
  const std::vector<int32_t> ragged_counts_ = {0, 1, 17, 0, 129, 128, 0};
};

TEST_P(EndScaledGemm, EqualsTheReferenceForAnyAlignment) {
  ASSERT_EQ(ragged_.sections, 1);
  for (const int32_t alignment : {16, 100}) {
    SCOPED_TRACE(alignment);
    expect_exact(ragged_, splits(ragged_counts_, alignment));
  }
}

TEST_P(EndScaledGemm, EqualsTheReferenceAroundTheSizesOfTilesAndTails) {
  for (const int32_t alignment : {1, 128}) {
    SCOPED_TRACE(alignment);
    expect_exact(ragged_, splits({64, 65, 127, 128, 129, 192, 193}, alignment));
  }
  expect_exact(ragged_, splits({15, 16, 17, 32, 33, 63, 130}, 128));
  // The second tile of a cluster has one row, is full, has none, and the next has one.
  if (GetParam().has_clusters) expect_exact(ragged_, splits({255, 256, 257, 0, 383, 384, 385}, 1));
}

// The last columns of a tile are beyond D, where there are no scales.
TEST_P(EndScaledGemm, EqualsTheReferenceWhereColumnsEndWithinATile) {
  expect_exact(problem(3, 1, 72, 16), splits({65, 10, 128}, 16));
  expect_exact(wide_, splits({65, 10, 0}, 16));
}

// Beside those above, of 1, 3 and 9 steps, in bf16 5 and 17.
TEST_P(EndScaledGemm, EqualsTheReferenceForContractionsOfAnyLength) {
  std::vector<int32_t> lengths = {512};
  if (kOnGpu) lengths = {128, 512, 640, 1024, 17 * 128 + 16, 7168};
  for (const int32_t k : lengths) {
    SCOPED_TRACE(k);
    expect_exact(problem(3, 1, 328, k), splits({30, 0, 70}, 16));
  }
}

TEST_P(EndScaledGemm, WritesZerosToPadRowsThatFillTilesOfTheirOwn) {
  expect_exact(ragged_, splits({1, 0, 0, 127, 0, 0, 64}, 300));
}

TEST_P(EndScaledGemm, LetsANanOfBReachItsColumnButNoPadRow) {
  const auto route = splits(ragged_counts_, 16);
  EndScaledOperands operands = integer_operands(ragged_, route);
  const int64_t expert = 4;
  const int64_t column = 150;
  operands.b[(expert * operands.columns + column) * operands.depth + 5] = NAN;
  expect_exact(ragged_, route, operands);
}

TEST_P(EndScaledGemm, TouchesNothingWhereAllGroupsAreEmpty) {
  std::vector<int32_t> counts(7, 0);
  const auto none = splits(counts, 128);
  counts[3] = 1;  // of an A that is never read
  const EndScaledOperands operands = integer_operands(ragged_, splits(counts, 1));
  EXPECT_TRUE(multiply(ragged_, none, operands).empty());
}

TEST_P(EndScaledGemm, DoesNotDependOnTheNumberOfCtas) {
  const auto route = splits(ragged_counts_, 16);
  const EndScaledOperands operands = random_operands(ragged_, route);
  const auto one = multiply(ragged_, route, operands, 1);
  for (const int64_t ctas : {5, 40}) {
    EXPECT_EQ(one, multiply(ragged_, route, operands, ctas)) << ctas << " CTAs";
  }
}

TEST_P(EndScaledGemm, GivesTheSameBitsInEveryOrderOfThreads) {
  const auto route = splits({129, 0, 64}, 1);
  const EndScaledOperands operands = random_operands(wide_, route);
  const auto first = multiply(wide_, route, operands);
  for (uint64_t run = 1; run < by_target(3U, 100U); ++run) {
    open(run);
    ASSERT_EQ(first, multiply(wide_, route, operands)) << "run " << run;
  }
}

// Kernels with scales: what they compute, to the bit.
class EndScales : public EndScaledGemmTest, public ::testing::WithParamInterface<EndScaledKind> {};

// Another order puts about a sixth of the 64 experts' rows on the other side of the middle.
TEST_P(EndScales, MeetTheSumInTheirOrder) {
  const GroupedGemmSpec spec = problem(GetParam(), 64, 1, 72, 32);
  const auto route = splits(std::vector<int32_t>(64, 1), 1);
  expect_bits(spec, route, halfway_operands(spec, route), spec.k);
}

// Tests the kernels that add partial sums in fp32.
class ShortChains : public EndScaledGemmTest,
                    public ::testing::WithParamInterface<EndScaledKind> {};

// In the simulator the two longer ones are kernels of the tests above.
TEST_P(ShortChains, AreOf128ProductsAndAddedInAscendingOrder) {
  for (const int32_t k : {by_target(512, 1024), 1040, 272, 128}) {
    SCOPED_TRACE(k);
    const GroupedGemmSpec spec = problem(GetParam(), 3, 1, 328, k);
    const auto route = splits({65, 10, 0}, 16);
    expect_bits(spec, route, cancelling_operands(spec, route), 128);
  }
}

// What the simulator runs has each part and each two that depend on each other.
std::vector<EndScaledKind> kinds() {
  std::vector<EndScaledKind> all = {
      {.scales = GemmScales::kTensor},
      {.scales = GemmScales::kTensor, .accumulation = GemmAccumulation::kFast},
      {.scales = GemmScales::kRowColumn},
      {.scales = GemmScales::kRowColumn, .is_swapped = true},
      {.scales = GemmScales::kTensor, .is_a_e5m2 = true},
      {.scales = GemmScales::kTensor, .is_swapped = true, .is_a_e5m2 = true},
      {.scales = GemmScales::kNone},
      {.scales = GemmScales::kNone, .is_swapped = true},
      {.scales = GemmScales::kTensor,
       .accumulation = GemmAccumulation::kFast,
       .has_clusters = true},
      {.scales = GemmScales::kTensor, .is_a_e5m2 = true, .has_clusters = true},
      {.scales = GemmScales::kRowColumn, .has_clusters = true},
      {.scales = GemmScales::kTensor, .is_widest = true},
      {.scales = GemmScales::kRowColumn,
       .accumulation = GemmAccumulation::kFast,
       .is_widest = true},
      {.scales = GemmScales::kNone, .is_widest = true},
      {.scales = GemmScales::kNone, .b_major = compiler::Major::kMn},
      {.scales = GemmScales::kTensor, .is_bf16 = true},
      {.scales = GemmScales::kTensor, .is_swapped = true, .is_bf16 = true},
      {.scales = GemmScales::kTensor, .b_major = compiler::Major::kMn, .is_bf16 = true},
      {.scales = GemmScales::kNone, .has_column_halves = true},
      {.scales = GemmScales::kTensor, .is_a_e5m2 = true, .has_column_halves = true},
      {.scales = GemmScales::kRowColumn,
       .accumulation = GemmAccumulation::kFast,
       .has_column_halves = true},
      {.scales = GemmScales::kTensor,
       .b_major = compiler::Major::kMn,
       .is_bf16 = true,
       .has_column_halves = true},
  };
  if (!kOnGpu) return all;
  for (const GemmScales scales : {GemmScales::kTensor, GemmScales::kRowColumn}) {
    all.push_back({.scales = scales, .accumulation = GemmAccumulation::kFast, .is_swapped = true});
  }
  all.push_back({.scales = GemmScales::kTensor, .is_swapped = true});
  all.push_back({.scales = GemmScales::kRowColumn, .accumulation = GemmAccumulation::kFast});
  return all;
}

// Expert 4 has one row in one launch, and in others some among which are that same row. Swapped
// tiles have one width for each number up to 64, others a tail or a whole tile.
TEST_P(EndScaledGemm, GivesARowTheSameBitsWhereverItLies) {
  const auto only = [](int32_t count) { return splits({0, 0, 0, 0, count, 0, 0}, 1); };
  const EndScaledOperands one = random_operands(ragged_, only(1));
  const auto alone = multiply(ragged_, only(1), one);
  const std::vector<int32_t> all_counts = GetParam().is_swapped
                                              ? std::vector<int32_t>{9, 32, 50, 80}
                                              : std::vector<int32_t>{9, 80, 200};
  for (const int32_t count : all_counts) {
    EndScaledOperands many = random_operands(ragged_, only(count));
    many.b = one.b;
    many.b_scale = one.b_scale;
    for (const int64_t row : {0, count / 2, count - 1}) {
      std::ranges::copy(one.a, many.a.begin() + row * many.depth);
      many.a_scale[row] = one.a_scale[0];
    }
    const auto among = multiply(ragged_, only(count), many);
    for (const int64_t row : {0, count / 2, count - 1}) {
      const std::vector<uint16_t> bits(&among[row * many.columns],
                                       &among[row * many.columns] + many.columns);
      EXPECT_EQ(bits, alone) << "row " << row << " of " << count;
    }
  }
}

// Tests swapped tiles of more than 64 rows, some in clusters.
class HighSwappedTiles : public EndScaledGemmTest,
                         public ::testing::WithParamInterface<EndScaledKind> {};

TEST_P(HighSwappedTiles, EqualTheReference) {
  for (const int64_t rows : {96, 128}) {
    GroupedGemmSpec spec = problem(GetParam(), 7, 2, 216, 272, rows);
    ASSERT_EQ(spec.tile_rows, rows);
    ASSERT_TRUE(may_share_a(spec));
    if (rows == 128) spec = compiler::with_shared_a(spec);
    for (const int32_t alignment : {1, 16})
      expect_exact(spec, splits({120, 65, 96, 97, 0, 129, 200}, alignment));
  }
}

std::string name_of(const ::testing::TestParamInfo<EndScaledKind>& kind) {
  return fmt::format(
      "{}{}{}{}{}{}{}{}", to_string(kind.param.scales),
      kind.param.accumulation == GemmAccumulation::kFast ? "_fast" : "",
      kind.param.has_clusters ? "_clusters" : "", kind.param.is_widest ? "_widest" : "",
      kind.param.has_column_halves ? "_column_halves" : "", kind.param.is_swapped ? "_swapped" : "",
      kind.param.b_major == compiler::Major::kMn ? "_mn_major" : "",
      kind.param.is_a_e5m2 ? "_e5m2"
      : kind.param.is_bf16 ? "_bf16"
                           : "");
}

std::vector<EndScaledKind> swapped_kinds() {
  std::vector<EndScaledKind> all = kinds();
  std::erase_if(all, [](const EndScaledKind& kind) { return !kind.is_swapped; });
  return all;
}

std::vector<EndScaledKind> kinds_with_scales() {
  std::vector<EndScaledKind> all = kinds();
  std::erase_if(all, [](const EndScaledKind& kind) { return kind.scales == GemmScales::kNone; });
  return all;
}

std::vector<EndScaledKind> kinds_with_short_chains() {
  std::vector<EndScaledKind> all = kinds_with_scales();
  std::erase_if(all, [](const EndScaledKind& kind) {
    return kind.is_bf16 || kind.accumulation == GemmAccumulation::kFast;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EndScaledGemm, ::testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(All, HighSwappedTiles, ::testing::ValuesIn(swapped_kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(All, EndScales, ::testing::ValuesIn(kinds_with_scales()), name_of);
INSTANTIATE_TEST_SUITE_P(All, ShortChains, ::testing::ValuesIn(kinds_with_short_chains()), name_of);

}  // namespace
}  // namespace moejit::testing
