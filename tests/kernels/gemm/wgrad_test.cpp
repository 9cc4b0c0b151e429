// SPDX-License-Identifier: Apache-2.0
// The contraction-grouped GEMM against the CPU reference, bit for bit, for both kinds of scales,
// whatever D held.

#include "tests/kernels/gemm/wgrad_runner.h"

namespace moejit::testing {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using reference::QuantizedRows;
using reference::Route;

constexpr GradientScales kScales[] = {GradientScales::kTile, GradientScales::kRow};
// Tokens of a group to expect: the planner's three ways to add.
constexpr int64_t kMeanColumns[] = {4096, 1024, 256};

class Wgrad : public WgradTest {
 protected:
  // The same problem with both kinds of scales and every output, also in clusters.
  template <typename Check>
  static void for_each_kind(const Check& check) {
    for (const GradientScales scales : kScales) {
      for (const GradientOutput output : kGradientOutputs) {
        for (const Spec& spec : ways(problem(scales, output, 5, 144, 208))) {
          SCOPED_TRACE(to_string(spec));
          check(spec);
        }
      }
    }
  }
};

TEST_F(Wgrad, EqualsTheReferenceForEveryOutput) {
  const Route route = splits({0, 1, 130, 128, 0}, 128);
  for_each_kind([&](const Spec& spec) { expect_exact(spec, route); });
}

TEST_F(Wgrad, EqualsTheReferenceForGroupsOfAnySize) {
  const Route route = splits({by_target(500, 4000), 0, 40, 127, 128}, 128);
  for_each_kind([&](const Spec& spec) { expect_exact(spec, route); });
}

// Sizes around a step of the contraction, with room between the groups that nobody owns.
TEST_F(Wgrad, ReadsNoColumnsBeyondAGroupsSteps) {
  const Route route = splits({0, 1, 127, 128, 129}, 256);
  for_each_kind([&](const Spec& spec) { expect_exact(spec, route); });
}

TEST_F(Wgrad, AddsInEachOfThePlannersWays) {
  const Route route = splits({300, 0, 700}, 128);
  for (const GradientScales scales : kScales) {
    for (const int64_t mean : kMeanColumns) {
      const Spec usual = problem(scales, GradientOutput::kF32Add, 3, 144, 448, mean);
      for (const Spec& spec : ways(usual)) {
        SCOPED_TRACE(to_string(spec));
        expect_exact(spec, route);
      }
    }
    const Spec rounded = problem(scales, GradientOutput::kBf16Add, 3, 144, 448);
    for (const Spec& spec : ways(rounded)) {
      SCOPED_TRACE(to_string(spec));
      expect_exact(spec, route);
    }
  }
}

TEST_F(Wgrad, EqualsTheReferenceWithNarrowTilesAlone) {
  for (const GradientScales scales : kScales) {
    for (const GradientOutput output : kGradientOutputs) {
      const Spec spec = problem(scales, output, 2, 72, 120);
      SCOPED_TRACE(to_string(spec));
      expect_exact(spec, splits({200, 65}, 128));
    }
  }
}

// Scales of tiles are fetched for 32 steps at once.
TEST_F(Wgrad, EqualsTheReferenceForGroupsOfManySteps) {
  const Route route = splits({65 * 128 + 16, 35 * 128}, 128);
  for (const GradientScales scales : kScales) {
    const Spec spec = problem(scales, GradientOutput::kF32, 2, 16, 32);
    SCOPED_TRACE(to_string(spec));
    expect_exact(spec, route);
  }
}

// The walk over the groups takes 32 at a time.
TEST_F(Wgrad, EqualsTheReferenceForManyGroups) {
  std::vector<int32_t> counts(70, 0);
  for (size_t i = 0; i < counts.size(); i += 3) counts[i] = static_cast<int32_t>(i);
  for (const GradientOutput output : {GradientOutput::kF32, GradientOutput::kF32Add}) {
    SCOPED_TRACE(to_string(output));
    expect_exact(problem(GradientScales::kTile, output, 70, 16, 32, 256), splits(counts, 128));
  }
}

TEST_F(Wgrad, WritesZerosWhereNothingIsRoutedOrLeavesWhatWasThere) {
  const Route route = splits({0, 0, 0, 0, 0}, 128);
  for_each_kind([&](const Spec& spec) { expect_exact(spec, route); });
}

// Three row tiles: the second CTA of a cluster has none below the third, or, where the rows are in
// two sections, each has one of both. Groups of no, one and some tokens.
class WgradClusters : public Wgrad {
 protected:
  void expect_same_bits(GradientScales scales, GradientOutput output, int64_t mean) {
    const Route route = splits({0, 1, 129, 0, 16}, 128);
    const Spec lone = problem(scales, output, 5, 328, 336, mean);
    Spec sections = lone;
    sections.rows = 768;
    sections.sections = 2;
    sections.section_rows = 328;
    for (const Spec& usual : {lone, sections}) {
      const QuantizedRows a = randoms(usual, usual.rows, route, 7);
      const QuantizedRows b = randoms(usual, usual.n, route, 8);
      const std::vector<float> old = old_values(usual);
      const auto wanted = multiply(usual, route, a, b, old);
      Spec in_clusters = usual;
      in_clusters.cluster_ctas = 2;
      for (const int64_t ctas : {2, 6})
        ASSERT_EQ(multiply(in_clusters, route, a, b, old, ctas), wanted) << to_string(in_clusters);
    }
  }
};

TEST_F(WgradClusters, ThatRowTilesDoNotFillHaveTheSameBits) {
  for (const GradientScales scales : kScales)
    for (const GradientOutput output : kGradientOutputs)
      expect_same_bits(scales, output, kMeanColumns[0]);
}

TEST_F(WgradClusters, AddTheSameBitsInEachOfThePlannersWays) {
  for (const GradientScales scales : kScales)
    for (const int64_t mean : {kMeanColumns[1], kMeanColumns[2]})
      expect_same_bits(scales, GradientOutput::kF32Add, mean);
}

TEST_F(Wgrad, GivesTheSameBitsInEveryRun) {
  const Route route = splits({200, 0, 640}, 128);
  for (const GradientScales scales : kScales) {
    for (const int64_t mean : kMeanColumns) {
      const Spec usual = problem(scales, GradientOutput::kF32Add, 3, 144, 448, mean);
      const QuantizedRows a = randoms(usual, usual.rows, route, 5);
      const QuantizedRows b = randoms(usual, usual.n, route, 6);
      const std::vector<float> old = old_values(usual);
      const auto first = multiply(usual, route, a, b, old);
      for (const Spec& spec : ways(usual)) {
        for (uint64_t run = 1; run < by_target(3U, 100U); ++run) {
          open(run);
          ASSERT_EQ(first, multiply(spec, route, a, b, old, 1 + static_cast<int64_t>(run) % 7))
              << to_string(spec) << ", run " << run;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moejit::testing
