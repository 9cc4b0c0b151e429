// SPDX-License-Identifier: Apache-2.0
// A tuner may take any candidate, so all of them give the bits of the usual one. The simulator runs
// every few of them, and the usual one, a GPU all.

#include "compiler/planner/candidates.h"

#include "compiler/planner/grouped_gemm.h"
#include "tests/kernels/gemm/gemm_runner.h"
#include "tests/kernels/gemm/wgrad_runner.h"

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using compiler::GroupRows;

const std::size_t kStep = by_target(3, 1);

class Candidates : public GemmTest {
 protected:
  void expect_equal_bits(const GroupedGemmSpec& problem, const GroupRows& rows,
                         const reference::Route& route) {
    const auto candidates = compiler::grouped_gemm_candidates(problem, rows);
    const auto a = random_rows(problem, route.rows());
    const auto b = random_weights(problem);
    const auto wanted = multiply(candidates.front().spec, route, a, b);
    for (std::size_t i = kStep; i < candidates.size(); i += kStep) {
      SCOPED_TRACE(to_string(compiler::KernelSpec(candidates[i].spec)));
      EXPECT_EQ(multiply(candidates[i].spec, route, a, b), wanted);
    }
  }
};

// Groups of 11, 0 and 3 tiles: bands of 4 and of 8 end within the first.
TEST_F(Candidates, OfManyRowsHaveTheBitsOfTheUsualOne) {
  expect_equal_bits({.local_experts = 3, .section_n = 336, .k = 640}, {400, 2000},
                    splits({1300, 0, 260}, 128));
}

// Swapped tiles and others.
TEST_F(Candidates, OfFewRowsHaveTheBitsOfTheUsualOne) {
  expect_equal_bits({.local_experts = 3, .section_n = 336, .k = 640}, {60, 100},
                    splits({17, 100, 65}, 1));
}

class WgradCandidates : public WgradTest {
 protected:
  void expect_equal_bits(compiler::GradientOutput output) {
    for (const auto scales : {compiler::GradientScales::kTile, compiler::GradientScales::kRow})
      expect_equal_bits(scales, output);
  }

  void expect_equal_bits(compiler::GradientScales scales, compiler::GradientOutput output) {
    const Spec problem{
        .scales = scales, .output = output, .local_experts = 3, .rows = 2304, .n = 336};
    const auto candidates = compiler::contraction_grouped_gemm_candidates(problem, 500);
    const reference::Route route = splits({130, 0, 16}, 128);
    const Spec& usual = candidates.front().spec;
    const auto a = randoms(usual, usual.rows, route, 3), b = randoms(usual, usual.n, route, 4);
    const auto wanted = WgradTest::multiply(usual, route, a, b, old_values(usual));
    for (std::size_t i = kStep; i < candidates.size(); i += kStep) {
      SCOPED_TRACE(to_string(compiler::KernelSpec(candidates[i].spec)));
      EXPECT_EQ(WgradTest::multiply(candidates[i].spec, route, a, b, old_values(usual)), wanted);
    }
  }
};

// 18 row tiles: bands of 16 and less end within a group.
TEST_F(WgradCandidates, ThatOverwriteHaveTheBitsOfTheUsualOne) {
  expect_equal_bits(compiler::GradientOutput::kF32);
}

TEST_F(WgradCandidates, ThatAddHaveTheBitsOfTheUsualOne) {
  expect_equal_bits(compiler::GradientOutput::kF32Add);
}

// Each CTA hands out its tiles in the same order, the first one later. Of the simulator's four CTAs
// three wait, as each is a band of its own.
TEST_F(WgradCandidates, ThatStartAtSeveralTimesHaveTheBitsOfTheUsualOne) {
  const Spec problem{
      .output = compiler::GradientOutput::kF32Add, .local_experts = 3, .rows = 2304, .n = 336};
  Spec usual = compiler::choose_tiles(problem, 500);
  usual.band_tiles = 1;
  Spec staggered = usual;
  staggered.start_times = compiler::kStartTimes;
  const reference::Route route = splits({130, 0, 16}, 128);
  const auto a = randoms(usual, usual.rows, route, 3), b = randoms(usual, usual.n, route, 4);
  EXPECT_EQ(WgradTest::multiply(staggered, route, a, b, old_values(usual)),
            WgradTest::multiply(usual, route, a, b, old_values(usual)));
}

}  // namespace
}  // namespace moejit::testing
